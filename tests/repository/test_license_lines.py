from repository.license_lines import LINE, files_without


def test_every_python_file_that_ships_begins_with_the_license():
    assert LINE.strip() == "# SPDX-License-Identifier: Apache-2.0"
    assert files_without() == [], "run: python tests/repository/license_lines.py"
