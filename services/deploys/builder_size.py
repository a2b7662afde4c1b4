"""Says which machine builds apps."""
from config.settings import Settings, SettingsError
from services.metering.plans import SIZES, Size


def builder_size(settings: Settings) -> Size:
    """The size that the settings name; raises SettingsError if there is none of that name."""
    size = SIZES.get(settings.builder_size)
    if size is None:
        raise SettingsError(
            f"SVC_BUILDER_SIZE names {settings.builder_size}; sizes are {', '.join(SIZES)}.")
    return size
