"""How libraries are imported without what serving never uses of them."""
