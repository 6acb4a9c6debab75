"""Who listens, and what can be watched closer than by events: segments, SDS messages, measurements, notices."""
