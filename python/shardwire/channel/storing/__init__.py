"""What a channel keeps in its persistence beside the records of its machine, and the calls to it."""
