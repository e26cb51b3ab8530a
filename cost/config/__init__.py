"""From a Hugging Face ``config.json`` to the layers of a model: exactly, or not at all."""
