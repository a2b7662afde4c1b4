"""The recipe of the guest's disk image and the program that builds it."""
