"""Access control: API keys, the tenants that they identify, and which data each tenant may see."""
