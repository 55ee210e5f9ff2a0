"""Only the bookkeeping: put the pieces of streamed tool calls together, whatever an upstream does to their ids.

For authors who read a stream themselves. An upstream names a running call by an index or an item id, its call id may come late
or never, arguments may come before the name, calls may interleave. The tracker sorts it out and refuses half a call.

    python examples/13_track_tool_calls.py
"""

import athena

# (the upstream's own index, call id, name, piece of the arguments), as a careless upstream sends them
PIECES = [
    (0, "call_a", "get_weather", '{"city": '),
    (1, "call_b", "get_time", ""),
    (0, None, None, '"To'),
    (1, None, None, '{"zone": "UTC"}'),
    (0, None, None, 'kyo"}'),
    (2, None, "get_news", '{"topic": "ow'),  # the connection breaks here
]

tracker = athena.ToolCallTracker()
for index, call_id, name, arguments in PIECES:
    if name is not None:
        started = tracker.start_call(call_id, name, provider_id=index)
        print("started   ", index, started.name if started else "later")
    tracker.append_args(index, arguments)

for index in (0, 1, 2):
    match tracker.complete_call(index):
        case athena.ToolCallComplete(id=call_id, arguments=arguments):
            print("complete  ", index, call_id, arguments)
        case athena.Error(code=code, message=message):
            print("refused   ", index, f"{code}: {message}")

print("to be run: ", [f"{call.name} {call.arguments}" for call in tracker.into_calls()])
