"""The router's index and its decisions against their limits, and beside Dynamo's RadixTree."""
