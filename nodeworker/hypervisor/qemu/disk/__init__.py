"""The disks of QEMU's machines: chains of layers, references to them, files for other hosts."""
