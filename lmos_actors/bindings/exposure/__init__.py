"""What a node exposes: names, descriptions, who may see them, values on their way out."""
