"""Data that all other rooms use: errors, settings, requests and controls as plain data, log and ids. Imports no other room."""
