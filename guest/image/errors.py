"""What can go wrong while building an image, in sentences that say what to do."""


class ImageError(Exception):
    """The image could not be built; the text is one sentence for the person at the terminal."""


class ArchiveUnreachable(ImageError):
    """The package archive of the distribution cannot be reached or does not answer."""
