"""Guest images and the warm images made of them: one memory image for each shape of machine. Also
where the memory of a new sandbox comes from."""
