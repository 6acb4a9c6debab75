"""How many messages may leave: the quota of a channel, and that of a node which its channels share."""
