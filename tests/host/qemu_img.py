"""The qemu-img program, and disks as it takes them."""
import subprocess


def qemu_img(*arguments):
    done = subprocess.run(["qemu-img", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def opened(file, below=None, image_format="qcow2"):
    """A disk, on `below`, as qemu-img takes it; our layers do not name what they stand on."""
    node = {
        "driver": image_format, "file": {"driver": "file", "filename": str(file), "locking": "off"}
    }
    return node | ({"backing": below} if below else {})
