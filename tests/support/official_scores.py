"""Scores by the official evaluators, from files that they read themselves."""

import contextlib
import io
import json

import numpy as np


def trackeval_scores(tmp_path, sequences, preprocess=False):
    """What TrackEval's own reader and evaluator make of rows as files: name, truth, tracks, number of frames.

    Rows of the truth have 6 columns, or 9 with mark, class and visibility, which count with `preprocess`.
    """
    import trackeval

    for name, truth, tracks, _ in sequences:
        gt = tmp_path / "gt" / name / "gt"
        gt.mkdir(parents=True)
        whole = np.hstack([truth, np.ones((len(truth), 9 - truth.shape[1]))])
        np.savetxt(gt / "gt.txt", whole, delimiter=",", fmt="%.10g")
        data = tmp_path / "trackers" / "mine" / "data"
        data.mkdir(parents=True, exist_ok=True)
        np.savetxt(
            data / f"{name}.txt",
            np.hstack([tracks, np.ones((len(tracks), 1)), -np.ones((len(tracks), 3))]),
            delimiter=",",
            fmt="%.10g",
        )
    quiet = {"PRINT_CONFIG": False}
    with contextlib.redirect_stdout(io.StringIO()):
        dataset = trackeval.datasets.MotChallenge2DBox(
            quiet
            | {
                "GT_FOLDER": str(tmp_path / "gt"),
                "TRACKERS_FOLDER": str(tmp_path / "trackers"),
                "SKIP_SPLIT_FOL": True,
                "SEQ_INFO": {name: count for name, _, _, count in sequences},
                "DO_PREPROC": preprocess,
                "OUTPUT_FOLDER": str(tmp_path / "out"),
            }
        )
        evaluator = trackeval.Evaluator(
            quiet
            | {
                "PRINT_RESULTS": False,
                "OUTPUT_SUMMARY": False,
                "OUTPUT_DETAILED": False,
                "PLOT_CURVES": False,
                "TIME_PROGRESS": False,
                "LOG_ON_ERROR": None,
                "BREAK_ON_ERROR": True,
            }
        )
        metrics = [trackeval.metrics.HOTA(), trackeval.metrics.CLEAR(quiet), trackeval.metrics.Identity(quiet)]
        results, _ = evaluator.evaluate([dataset], metrics)
    return results["MotChallenge2DBox"]["mine"]["COMBINED_SEQ"]["pedestrian"]


def coco_stats(tmp_path, truth, results, categories=None):
    """COCO's twelve numbers by pycocotools, from the content of an instances file and of a file of results."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    (tmp_path / "gt.json").write_text(json.dumps(truth))
    (tmp_path / "dt.json").write_text(json.dumps(results))
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(tmp_path / "gt.json"))
        run = COCOeval(coco, coco.loadRes(str(tmp_path / "dt.json")), "bbox")
        run.params.catIds = categories or run.params.catIds
        run.evaluate()
        run.accumulate()
        run.summarize()
    return run.stats
