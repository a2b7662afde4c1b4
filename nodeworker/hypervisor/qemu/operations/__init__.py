"""The operations of the driver, one module each; all may be repeated after a kill at any
instruction."""
