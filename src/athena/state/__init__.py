"""What a conversation that the server keeps means. Pure: stored values in, request bodies and stored values out.

OpenAI's Responses API lets a client continue without sending the history again: by the id of the response before
(`previous_response_id`), by a conversation, or by references to single items. This room says what each of these stands for,
which ones are wrong and with which error of OpenAI's, and what is to be stored of an answer. It works on the items of that API
as they stand on the wire, so nothing is lost between what a client was shown and what the model reads of it later.

    asked = read_asked(body)                      what the body asks of the store
    history = ...                                 the shell loads what `asked` names
    resolved = resolve(body, asked, history)      the same request with everything in it
    stored = stored_response(...)                 what to keep of the answer
"""
