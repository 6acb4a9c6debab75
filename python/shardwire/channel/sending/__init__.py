"""Messages of ours on their way out: segmented, registered with SDS, sealed, dispatched, and how far each has come."""
