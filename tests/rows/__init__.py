"""Operations, events and snapshots in the rows, with a test as their worker or sender."""
