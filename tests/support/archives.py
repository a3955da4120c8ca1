"""A data set of a real video, as fixtures: its first 40 frames, with tracks and events."""

import shutil

import pytest

from streamkit.batch.inputs import find
from streamkit.query.database import Database
from streamkit.query.dataset_location import DatasetLocation
from streamkit.query.index import index_of
from streamkit.query.selected_frames import labels_of
from support.dataset_runs import STREET, TRACKED, do, settings


@pytest.fixture(scope="session")
def shared_archive(tmp_path_factory):
    """Return the folder of the data set and its video; tests must not change them."""
    folder = tmp_path_factory.mktemp("archive")
    video = folder / "videos" / "street.mp4"
    video.parent.mkdir()
    shutil.copyfile(STREET, video)
    batch_settings = settings(folder, TRACKED)
    do(batch_settings, *find([str(video)]))
    return batch_settings.out, video


@pytest.fixture
def archive(shared_archive, tmp_path):
    """Copy the data set, so that a test may build its index."""
    return shutil.copytree(shared_archive[0], tmp_path / "archive")


def opened(folder):
    """Open the tables of a data set."""
    location = DatasetLocation(str(folder))
    return Database(index_of(location), labels_of(location))


@pytest.fixture(scope="session")
def database(shared_archive):
    with opened(shared_archive[0]) as archive_database:
        yield archive_database
