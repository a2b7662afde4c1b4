"""During which operations a running sandbox goes on taking commands, files and visitors: those that
its guest goes on through."""
from models.states import CAPTURES, OperationKind

# A capture pauses the guest for a moment, an archive is read beside everything else, a wake or
# forward only adds ports, a disk grows under it. The rest end it.
USABLE_DURING = (*CAPTURES, OperationKind.WAKE, OperationKind.GROW, OperationKind.FORWARD)
