"""The command of streamkit: `python run.py pipeline.yaml`; `python run.py --help` says the rest."""

from streamkit.cli import main

if __name__ == "__main__":
    main()
