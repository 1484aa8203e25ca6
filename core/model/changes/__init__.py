"""Changes a loaded model for serving: adapters, module passes, merged and packed projections. Checks the results."""
