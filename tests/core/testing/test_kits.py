"""The tests that stores are held to find what is wrong with a store, and say what it is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

FILES = {
    "LosesTheLastChunk": "test_a_file_comes_back_with_all_that_is_known_of_it",
    "IsOneByteOff": "test_a_range_is_that_of_the_bytes",
    "KeepsHalves": "test_of_a_file_that_breaks_off_nothing_remains",
    "MixesVersions": "test_who_has_begun_to_read_goes_on",
    "MixesSpaces": "test_a_listing_is_of_one_space_and_purpose",
    "NeedsItsCursor": "test_a_cursor_goes_on_where_it_was_while_files_come_and_go",
    "ExpiresLate": "test_files_are_expired_from_their_second_on_and_stay",
    "CleansNames": "test_a_name_comes_back_as_the_client_wrote_it",
    "DeletesAnything": "test_an_id_that_is_not_there_is_a_key_error",
    "ForgetsAll": "test_files_are_there_when_the_store_is_opened_again",
}
BATCHES = {
    "CountsDoubles": "test_a_line_keeps_its_first_result_and_is_counted_once",
    "KeepsTheLast": "test_a_line_keeps_its_first_result_and_is_counted_once",
    "InTheOrderOfArrival": "test_lines_come_by_ascending_number_however_they_were_added",
    "LosesTheLast": "test_lines_come_by_ascending_number_however_they_were_added",
    "IgnoresExpected": "test_a_job_that_another_has_changed_stays",
    "LooksTooEarly": "test_of_many_that_change_a_job_at_once_one_succeeds",
    "BelievesCounts": "test_a_job_that_has_ended_keeps_its_counts_but_no_results",
    "HasTwoOwners": "test_of_many_that_want_a_job_at_once_one_has_it",
    "LeasesForEver": "test_a_lease_ends_when_its_time_is_over_unless_it_is_renewed",
    "AnyoneGivesUp": "test_a_job_has_one_owner_who_may_renew_and_give_up",
    "KeepsResults": "test_a_job_that_has_ended_keeps_its_counts_but_no_results",
    "ForgetsTheModel": "test_a_job_comes_back_with_every_field",
    "ListsTheEnded": "test_listings_are_newest_first",
    "ForgetsAll": "test_jobs_and_results_are_there_when_the_store_is_opened_again",
}


@pytest.mark.parametrize(("name", "broken"), [("broken_files.py", FILES), ("broken_batches.py", BATCHES)])
def test_each_broken_store_is_found_by_the_test_of_the_promise_that_it_breaks(
    name: str, broken: dict[str, str]
) -> None:
    tests = [f"{HERE / name}::Test{kind}::{test}" for kind, test in broken.items()]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert set(re.findall(r"^FAILED .*::Test(\w+)::(test_\w+)", said, re.MULTILINE)) == set(broken.items())
    assert "ERROR" not in said
    assert re.search(r"^E +(AssertionError: )?assert .* == ", said, re.MULTILINE)  # not only that one failed
