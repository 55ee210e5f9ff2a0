"""`athena demo`: the scripted demo model as an upstream of its own."""

from __future__ import annotations

import click


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), default=12378, show_default=True, help="Port to listen on; 0: a free one."
)
def demo(port: int) -> int:
    """Run only the built-in demo upstream.

    It is a scripted model behind the Chat API that writes its tool calls as raw Kimi tokens into its reasoning: something to
    point other tools at, or a gateway with a configuration of your own.

    \b
    Examples:
      athena demo
      athena demo --port 9000
      athena serve --base-url http://127.0.0.1:12378/v1
    """
    import asyncio

    return asyncio.run(_serve(port))


async def _serve(port: int) -> int:
    import asyncio
    import signal

    from athena.errors import AthenaError
    from athena.shells.demo_server import DemoServer

    server = DemoServer()
    try:
        await server.start(port)
    except OSError as error:
        raise AthenaError(f"port {port} cannot be used: {error.strerror or error}; choose another with --port") from None
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    click.echo(f"The demo model answers on {server.url}")
    await stopped.wait()
    await server.close()
    return 0
