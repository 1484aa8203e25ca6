"""The tests that parts are held to find what is wrong with a part, and say what it is."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

import llmfw.core.testing as kit

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
ATTENTION = {
    "OffByOnePage": "test_equals_attention_in_float64",
    "BelievesTheBatchIsTheTable": "test_equals_attention_in_float64",
    "SeesTheNextToken": "test_equals_attention_in_float64",
    "WindowTooLarge": "test_equals_attention_in_float64",
    "ForgetsTheSinks": "test_sinks_take_their_share",
    "WritesEverywhere": "test_nothing_is_written_but_the_new_tokens",
    "ForgetsTheScaleOfKeys": "test_keys_and_values_may_be_kept_in_eight_bits",
    "LetsNumbersOverflow": "test_what_eight_bits_cannot_hold_is_kept_as_their_largest_number",
    "PlansOnce": "test_one_backend_runs_step_after_step",
    "CapturesLengths": "test_static_steps_are_planned_anew_and_right",
}
PASSES = {
    "ForgetsEps": "test_the_logits_stay_the_same",
    "ForgetsOne": "test_the_logits_stay_the_same",
    "RemembersTheLast": "test_the_logits_stay_the_same",
    "CountsNothing": "test_the_logits_stay_the_same",
    "NeverEnds": "test_a_second_time_there_is_nothing_left_to_change",
    "RenamesWeights": "test_weights_keep_their_names_and_values",
    "GoesByTheName": "test_unusual_modules_are_left_alone",
    "ForgetsHooks": "test_unusual_modules_are_left_alone",
}
POLICIES = {
    "OrdersOnlyAsManyAsAreAdmitted": "test_each_that_waits_has_one_place_in_the_order",
    "NeedsAFirst": "test_each_that_waits_has_one_place_in_the_order",
    "RanksInsteadOfPlaces": "test_each_that_waits_has_one_place_in_the_order",
    "SortsInPlace": "test_what_it_sees_is_left_as_it_was",
    "TakesTurns": "test_the_same_input_gives_the_same_answer",
    "AsTheyLie": "test_the_order_does_not_depend_on_that_of_the_columns",
    "RetractsTheNewestOnly": "test_each_that_runs_has_one_place_in_the_order_of_retraction",
    "LetsThoseWhoWaitGiveWay": "test_each_that_runs_gives_way_at_most_once",
    "LooksAtEachForEach": "test_thousands_are_ordered_in_the_time_of_a_few_sorts",
    "ReadsIdsAsNumbers": "test_each_request_ends_once_under_load",
}

TOOL_PARSERS = {
    "LosesTheRest": "test_text_without_calls_comes_back_unchanged",
    "ReadsPieces": "test_wherever_a_text_is_cut_the_result_is_the_same",
    "CallsAnything": "test_a_call_of_a_tool_that_the_request_does_not_have_is_text",
    "CountsFromOne": "test_the_calls_of_the_examples_are_found",
    "NamesEachPiece": "test_the_calls_of_the_examples_are_found",
    "ReadsTheArguments": "test_the_calls_of_the_examples_are_found",
    "TrimsText": "test_text_without_calls_comes_back_unchanged",
    "GivesEmptyText": "test_nothing_comes_of_nothing",
    "SharesItsText": "test_each_choice_has_a_state_of_its_own",
    "SaysAnotherTrigger": "test_what_the_call_format_writes_is_read",
}
REASONING_PARSERS = {
    "LosesTheRest": "test_a_text_that_ends_as_a_mark_begins_comes_back",
    "ForgetsThatItIsInside": "test_where_the_prompt_has_opened_the_reasoning_the_text_begins_inside",
    "ReadsPieces": "test_wherever_a_text_is_cut_the_result_is_the_same",
    "TakesUnendedForContent": "test_reasoning_that_never_ends_is_reasoning",
    "ShowsItsMarks": "test_what_is_between_the_marks_is_reasoning",
    "GivesEmptyText": "test_nothing_comes_of_nothing",
    "Remembers": "test_each_choice_has_a_state_of_its_own",
    "AnswersWithText": "test_a_text_that_ends_as_a_mark_begins_comes_back",
}
CHAT_TEMPLATES = {
    "EscapesText": "test_a_message_is_in_the_prompt_as_it_was_written",
    "SystemLast": "test_messages_are_in_the_prompt_in_their_order",
    "Remembers": "test_the_same_conversation_makes_the_same_prompt_whatever_came_between",
    "TakesDefaultsFromTheMessage": "test_what_it_is_given_is_left_as_it_was",
    "NeverBegins": "test_the_beginning_of_a_turn_is_appended_where_it_is_asked_for",
    "BeginsWhenTold": "test_it_is_appended_unless_the_caller_says_otherwise",
    "NamesToolsOnly": "test_all_of_the_definitions_of_tools_is_in_the_prompt",
    "ForgetsTools": "test_all_of_the_definitions_of_tools_is_in_the_prompt",
    "RaisesWhatItMeets": "test_what_it_cannot_render_is_a_request_error_that_says_why",
    "KnowsItsArguments": "test_arguments_that_it_does_not_know_are_no_obstacle",
}
GRAMMARS = {
    "MasksTooMuch": "test_at_every_state_the_mask_allows_what_is_accepted_and_nothing_else",
    "ForgetsTheRest": "test_no_token_is_allowed_that_the_tokenizer_does_not_have",
    "FillsTheFirst": "test_masks_of_many_are_those_of_each_alone",
    "EndsAnywhere": "test_what_is_written_as_the_masks_say_fits",
    "IsNotACopy": "test_a_copy_goes_its_own_way",
    "ForcesItsFavourite": "test_forced_tokens_are_the_only_way",
    "TakesAnything": "test_texts_that_do_not_fit_are_refused",
    "IsNeverFinished": "test_a_finished_output_may_only_end",
    "RefusesAll": "test_texts_that_fit_are_taken_in_up_to_their_end",
    "RaisesWhatItMeets": "test_a_broken_grammar_is_a_request_error_that_says_why",
    "CompilesOneAtATime": "test_many_are_compiled_at_once",
    "HastensToNothing": "test_who_is_hastened_has_a_way_left_and_no_new_one",
    "IgnoresTheEnd": "test_texts_that_do_not_fit_are_refused",
}
DRAFTERS = {
    "IgnoresTheLimit": "test_a_draft_is_of_tokens_and_no_longer_than_asked_for",
    "DraftsText": "test_a_draft_is_of_tokens_and_no_longer_than_asked_for",
    "DraftsWhatIsNoToken": "test_a_draft_is_of_tokens_and_no_longer_than_asked_for",
    "NeedsTwoTokens": "test_the_shortest_prompts_are_prompts",
    "ReadsPieces": "test_a_draft_is_the_same_however_the_tokens_came",
    "TakesItsDraftForGranted": "test_to_be_asked_changes_nothing",
    "TakesTurns": "test_to_be_asked_changes_nothing",
    "KeepsWhatItIsGiven": "test_what_it_is_given_is_left_as_it_was_and_what_becomes_of_it_does_not_matter",
    "SortsWhatItIsGiven": "test_what_it_is_given_is_left_as_it_was_and_what_becomes_of_it_does_not_matter",
    "SharesWhatFollows": "test_each_sequence_is_drafted_for_by_its_own_tokens",
    "ReadsAllAgain": "test_a_step_takes_no_longer_where_the_sequence_is_long",
}
MODELS = {
    "IsElsewhere": "test_the_folder_is_there_and_stays_the_same",
    "DependsOnTheStart": "test_the_folder_is_there_and_stays_the_same",
    "HasNoWeights": "test_its_weights_are_whole",
    "BringsAPointer": "test_its_weights_are_whole",
    "IsCutOff": "test_its_weights_are_whole",
    "LacksAShard": "test_its_weights_are_whole",
    "HasNoTokenizer": "test_its_tokenizer_writes_and_reads_text",
    "IsOfNoKnownKind": "test_transformers_reads_its_config",
    "IsTooNarrow": "test_its_logits_are_wide_enough_for_its_tokenizer",
    "NamesAnotherParser": "test_its_parsers_are_registered",
    "RefusesQuestions": "test_its_chat_template_renders_a_question",
}
RESPONSES = {
    "ForgetsTheInput": "test_a_response_comes_back_with_every_field",
    "KeepsTheFirst": "test_a_response_replaces_the_one_of_its_id",
    "HasNone": "test_an_id_that_is_not_there_is_a_key_error",
    "NewestFirst": "test_a_conversation_comes_first_turn_first_and_without_other_branches",
    "MixesBranches": "test_a_conversation_comes_first_turn_first_and_without_other_branches",
    "DeletesTheConversation": "test_deleting_a_response_removes_no_other",
    "OverlooksGaps": "test_a_conversation_with_a_gap_is_a_key_error_of_what_is_gone",
    "OverlooksTheQueued": "test_the_unfinished_are_those_that_wait_or_run",
    "PurgesTurns": "test_a_purge_removes_conversations_by_their_last_turn",
    "CountsConversations": "test_a_purge_removes_conversations_by_their_last_turn",
    "KeepsAll": "test_past_its_room_the_conversation_that_was_continued_longest_ago_goes",
    "ForgetsTheInputsSize": "test_past_its_room_the_conversation_that_was_continued_longest_ago_goes",
    "WritesInTwoSteps": "test_many_put_at_once_and_all_is_there",
    "ForgetsAll": "test_responses_are_there_when_the_store_is_opened_again",
}


BROKEN = {
    "broken_files": FILES,
    "broken_batches": BATCHES,
    "broken_policies": POLICIES,
    "broken_attention": ATTENTION,
    "broken_passes": PASSES,
    "broken_tool_parsers": TOOL_PARSERS,
    "broken_reasoning_parsers": REASONING_PARSERS,
    "broken_chat_templates": CHAT_TEMPLATES,
    "broken_grammars": GRAMMARS,
    "broken_drafters": DRAFTERS,
    "broken_models": MODELS,
    "broken_responses": RESPONSES,
}


@pytest.mark.slow
def test_each_broken_part_is_found_by_the_test_of_the_promise_that_it_breaks(tmp_path: Path) -> None:
    # One process for all of them: to import torch takes longer than the tests.
    tests = [
        f"{HERE / module}.py::Test{kind}::{test}"
        for module, broken in BROKEN.items()
        for kind, test in broken.items()
    ]
    options = [
        "-p",
        "no:cacheprovider",
        "--hypothesis-profile",
        "unshrunk",
        f"--junitxml={tmp_path}/found.xml",
    ]
    command = [sys.executable, "-m", "pytest", "-q", *options, *tests]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found: dict[str, dict[str, str]] = {module: {} for module in BROKEN}
    reasons: dict[str, str] = dict.fromkeys(BROKEN, "")
    for case in ElementTree.parse(tmp_path / "found.xml").iter("testcase"):
        assert case.find("error") is None, said
        if (failure := case.find("failure")) is not None:
            *_, module, kind = case.attrib["classname"].split(".")
            found[module][kind.removeprefix("Test")] = case.attrib["name"].partition("[")[0]
            reasons[module] += failure.text or ""
    assert found == BROKEN
    why = r"^E +((AssertionError: )?assert .* == |AssertionError: Tensor-likes are not close)"
    assert [module for module, text in reasons.items() if not re.search(why, text, re.MULTILINE)] == []


def test_the_classes_are_there_without_torch_until_one_needs_it(fresh_python: Callable[..., str]) -> None:
    code = "import sys, llmfw.core.testing as kit\nkit.SchedulePolicyTests, kit.ToolParserTests, kit.FileStoreTests\n"
    assert fresh_python(code + "print({'torch', 'transformers'} & sys.modules.keys())") == "set()\n"
    assert set(kit.__all__) == set(kit._HOMES)
    assert all(isinstance(getattr(kit, name), type) for name in kit.__all__)
