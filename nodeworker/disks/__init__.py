"""Files of a virtual machine: sparse RAM files, qcow2 layers, and small records that survive a
crash."""
