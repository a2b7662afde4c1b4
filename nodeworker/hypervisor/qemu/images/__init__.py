"""Guest images and the warm images made of them: one memory image for each shape of machine."""
