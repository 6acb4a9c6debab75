"""What a node and a store bring, until the application has it."""
