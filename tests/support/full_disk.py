"""A disk that becomes full."""


class FullDisk:
    """A file that takes `room` bytes and then says that the disk is full, as the kernel does: short, then ENOSPC."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, data):
        if self.room <= 0:
            raise OSError(28, "No space left on device")
        taken = self.file.write(data[: self.room])
        self.room -= taken
        return taken

    def __getattr__(self, name):
        return getattr(self.file, name)
