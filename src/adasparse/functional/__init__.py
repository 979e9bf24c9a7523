"""Functions: they check arguments, choose the kernel and own the gradients."""
