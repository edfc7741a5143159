"""What a class of agents declares, and the contract compiled from it."""
