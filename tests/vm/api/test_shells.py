"""The life of a shell in a real machine: typing, size, a sleep in the middle, and the end of its
credential."""
import threading

from tests.clients.shells import ShellClient, url_of


def test_a_shell_through_a_sleep_and_the_end_of_its_key(vm_stack, vm_alice):
    made = vm_alice.create()["id"]
    key = vm_alice.post("/v1/api-keys", json={"name": "shell"}, headers=vm_alice.jwt_headers).json()
    url, headers = url_of(vm_stack, made), {"Authorization": f"Bearer {key['key']}"}
    with ShellClient(url, headers) as shell:
        shell.type("id -un; pwd; echo nonce-$$ > /dev/shm/nonce; cat /dev/shm/nonce\n")
        shell.until("user\r\n")
        shell.until("/home/user\r\n")
        shell.control(type="resize", cols=101, rows=33)
        shell.type("stty size; printf '\\342\\202\\254\\n'\n")
        shell.until("33 101\r\n")
        shell.until("\u20ac\r\n")
        sleeper = threading.Thread(target=vm_alice.post,
                                   args=(f"/v1/sandboxes/{made}/hibernate",))
        sleeper.start()
        assert shell.to_the_end() == 1001
        sleeper.join()
    vm_alice.wait_for(made, "hibernated")
    with ShellClient(url, headers) as shell:
        shell.type("cat /dev/shm/nonce\n")
        shell.until("nonce-")
        vm_alice.delete(f"/v1/api-keys/{key['apiKey']['id']}", headers=vm_alice.jwt_headers)
        assert shell.to_the_end() == 1008
    with ShellClient(url, vm_alice.key_headers) as shell:
        shell.type("exit 7\n")
        assert shell.to_the_end() == 1000 and shell.controls[-1]["exitCode"] == 7
    vm_alice.delete(f"/v1/sandboxes/{made}")
