"""The connections of the gateway when its process ends."""
import asyncio

from app.gateway.server import Server


def test_a_connection_that_ends_with_the_process_is_no_error():
    said = []

    async def run():
        asyncio.get_running_loop().set_exception_handler(lambda _, told: said.append(told))
        listening = await asyncio.start_server(Server(None, None, None, None).handle, "127.0.0.1")
        async with listening:
            _, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
            await asyncio.sleep(0.05)
            serving = asyncio.all_tasks() - {asyncio.current_task()}
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)
            writer.close()
    asyncio.run(run())
    assert said == []
