"""Media types of the files of static apps, by the end of their names: for nginx, which serves them,
and for the object store. Debian's own table lacks some that browsers insist on."""
from pathlib import PurePosixPath

DEFAULT = "application/octet-stream"
MEDIA_TYPES = {
    "avif": "image/avif", "bmp": "image/bmp", "css": "text/css", "csv": "text/csv",
    "eot": "application/vnd.ms-fontobject", "flac": "audio/flac", "gif": "image/gif",
    "gz": "application/gzip", "htm": "text/html", "html": "text/html", "ico": "image/x-icon",
    "ics": "text/calendar", "jpeg": "image/jpeg", "jpg": "image/jpeg", "js": "text/javascript",
    "json": "application/json", "jsonld": "application/ld+json", "jxl": "image/jxl",
    "m4a": "audio/mp4", "map": "application/json", "md": "text/markdown",
    "mjs": "text/javascript", "mp3": "audio/mpeg", "mp4": "video/mp4", "oga": "audio/ogg",
    "ogg": "audio/ogg", "ogv": "video/ogg", "otf": "font/otf", "pdf": "application/pdf",
    "png": "image/png", "rss": "application/rss+xml", "svg": "image/svg+xml",
    "tar": "application/x-tar", "tif": "image/tiff", "tiff": "image/tiff", "ttf": "font/ttf",
    "txt": "text/plain", "wasm": "application/wasm", "wav": "audio/wav", "weba": "audio/webm",
    "webm": "video/webm", "webmanifest": "application/manifest+json", "webp": "image/webp",
    "woff": "font/woff", "woff2": "font/woff2", "xhtml": "application/xhtml+xml",
    "xml": "application/xml", "zip": "application/zip",
}


def media_type(name: str) -> str:
    """The media type of a file of that name."""
    return MEDIA_TYPES.get(PurePosixPath(name).suffix[1:].lower(), DEFAULT)
