"""Who may use the server: API keys, the tenants behind them, and what belongs to whom."""
