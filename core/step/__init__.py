"""Runs planned steps on a device: staging, the forward pass, logit adjustments and sampling."""
