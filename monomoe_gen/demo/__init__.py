"""What the kernels do for a whole model: `demo decode`."""
