"""The pages of the reference that are made from code, each as Markdown; `docs/site_hooks.py` adds them to the site."""
