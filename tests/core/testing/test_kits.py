"""Each conformance kit finds the broken promise of a broken component and names it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

import llmfw.core.testing as kit

from ...length import LENGTH, of_length

HERE = Path(__file__).parent

FILES = {
    "DropsLastChunk": "test_a_file_keeps_its_bytes_and_fields",
    "OffByOneByte": "test_a_range_returns_exactly_its_bytes",
    "KeepsPartialUploads": "test_an_aborted_upload_leaves_nothing",
    "MixesVersions": "test_open_reads_survive_deletion_and_replacement",
    "MixesSpaces": "test_a_listing_has_one_space_and_purpose",
    "RequiresCursorFile": "test_cursors_stay_valid_while_files_change",
    "ExpiresLate": "test_expired_files_are_listed_and_not_removed",
    "ListsTwenty": "test_long_listings_are_complete",
    "FindsHundredExpired": "test_long_listings_are_complete",
    "SanitisesNames": "test_a_filename_is_returned_as_written",
    "AcceptsUnknownIds": "test_an_unknown_id_raises_key_error",
    "SleepsInPut": "test_no_call_holds_up_the_event_loop",
    "ReadsWholeFiles": "test_a_file_is_never_in_memory_whole",
    "CollectsUploads": "test_a_file_is_never_in_memory_whole",
    "KeepsBytesOfCancelledUploads": "test_unfinished_uploads_leave_no_bytes_behind",
    "LosesDataOnClose": "test_files_survive_reopening",
}
BATCHES = {
    "CountsDuplicates": "test_the_first_result_counts_once",
    "KeepsLastResult": "test_the_first_result_counts_once",
    "ReturnsArrivalOrder": "test_lines_are_returned_by_ascending_number",
    "SleepsInAdd": "test_no_call_holds_up_the_event_loop",
    "DropsLastLine": "test_lines_are_returned_by_ascending_number",
    "IgnoresExpectedStatus": "test_an_update_with_stale_status_is_refused",
    "UpdatesNonAtomically": "test_one_of_many_concurrent_updates_succeeds",
    "TakesCountsFromUpdates": "test_an_ended_job_keeps_counts_but_no_results",
    "AllowsTwoOwners": "test_one_of_many_concurrent_leases_succeeds",
    "NeverExpiresLeases": "test_a_lease_expires_unless_it_is_renewed",
    "LetsAnyoneRelease": "test_only_the_owner_renews_or_releases_a_lease",
    "DropsResultsAtUpdates": "test_an_unfinished_job_keeps_its_results",
    "KeepsEndedResults": "test_an_ended_job_keeps_counts_but_no_results",
    "DropsModelField": "test_a_created_job_keeps_every_field",
    "ListsEndedJobs": "test_listings_are_newest_first",
    "ListsHundred": "test_long_listings_are_complete",
    "ListsTwentyUnfinished": "test_long_listings_are_complete",
    "LosesDataOnClose": "test_jobs_and_results_survive_reopening",
}
ATTENTION = {
    "OffByOnePage": "test_equals_attention_in_float64",
    "IgnoresBatchRows": "test_equals_attention_in_float64",
    "NonCausal": "test_equals_attention_in_float64",
    "WindowTooLarge": "test_equals_attention_in_float64",
    "IgnoresSinks": "test_sinks_add_to_the_softmax_denominator",
    "WritesEverySlot": "test_only_the_new_tokens_are_written",
    "IgnoresKeyScale": "test_equals_attention_over_fp8_keys_and_values",
    "OverflowsFP8": "test_fp8_values_saturate_at_the_largest_number",
    "PlansOnce": "test_one_backend_runs_consecutive_steps",
    "CapturesLengths": "test_static_steps_are_planned_again_correctly",
    "PlansOnceForEachShape": "test_each_step_reads_its_own_pages",
    "PlansOnceForEachSize": "test_each_step_reads_its_own_pages",
    "KeepsPagesOfRows": "test_each_step_reads_its_own_pages",
    "ForgetsTheBeginning": "test_long_sequences_are_attended_to_completely",
    "ReadsTwoThousandTokens": "test_thousands_of_tokens_are_attended_to",
    "ComputesThirtyTwoSequences": "test_a_large_batch_equals_attention_in_float64",
    "ReadsNeighbors": "test_pages_of_others_do_not_matter",
}
PASSES = {
    "ForgetsEps": "test_the_logits_stay_the_same",
    "IgnoresGemmaOffset": "test_the_logits_stay_the_same",
    "CachesLastOutput": "test_the_logits_stay_the_same",
    "FailsInLongSteps": "test_the_logits_of_large_steps_stay_the_same",
    "ReturnsZero": "test_the_logits_stay_the_same",
    "NotIdempotent": "test_a_second_pass_changes_nothing",
    "RenamesWeights": "test_weights_keep_their_names_and_values",
    "MatchesByName": "test_unusual_modules_are_left_unchanged",
    "ForgetsHooks": "test_unusual_modules_are_left_unchanged",
}
POLICIES = {
    "OrdersOnlyAdmitted": "test_order_places_each_waiting_request_once",
    "RequiresNonEmpty": "test_order_places_each_waiting_request_once",
    "ReturnsArrivalNumbers": "test_order_places_each_waiting_request_once",
    "SortsInPlace": "test_the_policy_does_not_change_its_input",
    "NotDeterministic": "test_the_same_input_gives_the_same_answer",
    "ReturnsColumnOrder": "test_ordering_does_not_depend_on_column_order",
    "RetractsTheNewestOnly": "test_retraction_order_places_each_running_request_once",
    "RetractsWaiting": "test_give_way_retracts_each_request_at_most_once",
    "QuadraticTime": "test_ordering_thousands_costs_a_few_sorts",
    "ParsesIdsAsNumbers": "test_each_request_finishes_once_under_load",
    "HoldsWhileOthersRun": "test_no_request_is_held_back_for_ever",
    "HoldsLongPrompts": "test_no_request_is_held_back_for_ever",
    "FlipsEachFiftiethCall": "test_the_same_input_gives_the_same_answer",
    "BreaksTiesByColumn": "test_ties_do_not_depend_on_column_order",
    "RetractsTiesByColumn": "test_ties_do_not_depend_on_column_order",
    "RetractsForAnyone": "test_few_requests_are_retracted_under_load",
    "MisspellsItsField": "test_order_places_each_waiting_request_once",
    "FailsForAField": "test_each_request_finishes_once_under_load",
    "KeepsEveryArrival": "test_nothing_is_kept_of_ended_requests",
    "BreaksTiesByLength": "test_answers_equal_the_reference",
}

TOOL_PARSERS = {
    "DropsHeldText": "test_text_without_calls_is_returned_unchanged",
    "DependsOnChunking": "test_chunking_does_not_change_the_result",
    "AcceptsUnknownTools": "test_calls_of_unknown_tools_are_text",
    "IndexesFromOne": "test_the_calls_of_the_examples_are_found",
    "RepeatsNames": "test_the_calls_of_the_examples_are_found",
    "ReformatsArguments": "test_the_calls_of_the_examples_are_found",
    "TrimsText": "test_text_without_calls_is_returned_unchanged",
    "EmitsEmptyDeltas": "test_empty_text_gives_no_deltas",
    "SharesState": "test_each_choice_has_independent_state",
    "KnowsOneForm": "test_equal_definitions_give_equal_calls",
    "NeedsParameters": "test_values_need_not_fit_their_schemas",
    "WrongTrigger": "test_the_parser_reads_its_call_format",
}
REASONING_PARSERS = {
    "DropsHeldText": "test_an_incomplete_tag_is_returned_as_text",
    "IgnoresInReasoning": "test_text_starts_inside_reasoning_the_prompt_opened",
    "DependsOnChunking": "test_chunking_does_not_change_the_result",
    "UnclosedAsContent": "test_unclosed_text_is_reasoning",
    "KeepsTags": "test_text_between_the_tags_is_reasoning",
    "EmitsEmptyDeltas": "test_empty_text_gives_no_deltas",
    "KeepsState": "test_each_choice_has_independent_state",
    "FinishesWithStrings": "test_an_incomplete_tag_is_returned_as_text",
}
CHAT_TEMPLATES = {
    "EscapesText": "test_a_message_is_rendered_verbatim",
    "SystemLast": "test_messages_are_rendered_in_order",
    "KeepsState": "test_rendering_does_not_depend_on_earlier_calls",
    "ChangesMessages": "test_rendering_does_not_change_its_input",
    "NeverAppendsTurn": "test_add_generation_prompt_appends_the_assistant_turn",
    "AppendsOnlyOnRequest": "test_a_generation_prompt_is_added_by_default",
    "RendersToolNamesOnly": "test_all_tool_definitions_are_in_the_prompt",
    "IgnoresTools": "test_all_tool_definitions_are_in_the_prompt",
    "LeaksExceptions": "test_invalid_messages_raise_a_request_error",
    "RejectsUnknownArguments": "test_unknown_arguments_are_ignored",
    "StripsInPlace": "test_rendering_does_not_change_its_input",
    "StripsPartsInPlace": "test_rendering_does_not_change_its_input",
    "RemembersSystem": "test_no_text_of_earlier_conversations_comes_back",
    "CutsLongText": "test_text_is_neither_cut_nor_normalized",
    "ComposesLetters": "test_text_is_neither_cut_nor_normalized",
    "KeepsTwentyMessages": "test_messages_are_rendered_in_order",
    "EscapesResults": "test_a_source_means_what_jinja_says",
    "CutsCostlyPrompts": "test_a_costly_source_is_stopped",
    "MeasuresTooLate": "test_a_large_text_is_never_made",
    "RendersFailuresAsNothing": "test_a_source_reaches_only_the_conversation",
    "TiresOfRendering": "test_the_cost_of_renderings_does_not_add_up",
    "AppendsSpaceInHaste": "test_a_brief_rendering_equals_the_whole_one",
    "TakesSourcesFromClients": "test_arguments_do_not_replace_the_template",
    "StopsModerateSources": "test_moderate_sources_are_rendered",
    "KeepsNullValues": "test_messages_have_the_form_a_source_reads",
    "TakesItsTime": "test_a_slow_source_is_not_rendered_briefly",
    "TakesAnySource": "test_invalid_sources_raise_a_config_error",
    "HidesReasons": "test_errors_have_the_words_of_the_source",
    "RendersWithoutSource": "test_a_model_without_source_refuses_chats",
}
GRAMMARS = {
    "MasksTooMuch": "test_the_mask_allows_exactly_the_accepted_tokens",
    "AllowsPaddedIds": "test_only_tokens_of_the_tokenizer_are_allowed",
    "FillsFirstRowOnly": "test_batched_masks_equal_single_masks",
    "AllowsEndAnywhere": "test_texts_sampled_from_masks_match_the_grammar",
    "SharesCopies": "test_a_copied_state_is_independent",
    "ForcesOneChoice": "test_forced_tokens_are_the_only_continuation",
    "AcceptsAnything": "test_texts_that_do_not_match_are_refused",
    "NeverFinished": "test_a_finished_output_allows_only_the_end",
    "RefusesEverything": "test_matching_texts_are_accepted_to_their_end",
    "LeaksExceptions": "test_a_broken_grammar_raises_a_request_error",
    "FailsConcurrentCompiles": "test_grammars_compile_concurrently",
    "HastensToEmptyMask": "test_hasten_keeps_a_token_and_adds_none",
    "PreparesAnotherGrammar": "test_a_prepared_grammar_compiles_to_the_same",
    "MatchesPrefixes": "test_texts_that_do_not_match_are_refused",
    "ReadsSixteenChoices": "test_matching_texts_are_accepted_to_their_end",
    "CachesInLowerCase": "test_similar_grammars_are_not_confused",
    "CompilesInAThread": "test_building_the_backend_starts_no_thread",
    "AllowsAnythingEarly": "test_the_mask_allows_exactly_the_accepted_tokens",
    "IgnoresNot": "test_accepted_schemas_allow_what_they_say",
    "RefusesPatterns": "test_what_is_not_named_unread_is_read",
    "RepeatsWithoutSeparators": "test_accepted_formats_allow_what_they_say",
    "ReadsMalformedSchemas": "test_a_broken_grammar_raises_a_request_error",
    "NeverHastens": "test_hastened_outputs_end_soon",
}
DRAFTERS = {
    "IgnoresLimit": "test_a_draft_has_valid_tokens_within_the_limit",
    "DraftsWithoutEnd": "test_a_draft_has_valid_tokens_within_the_limit",
    "DraftsText": "test_a_draft_has_valid_tokens_within_the_limit",
    "DraftsInvalidTokens": "test_a_draft_has_valid_tokens_within_the_limit",
    "RequiresTwoTokens": "test_the_shortest_prompts_are_accepted",
    "DependsOnChunking": "test_a_draft_does_not_depend_on_chunking",
    "AcceptsItsOwnDraft": "test_asking_for_a_draft_changes_nothing",
    "NotDeterministic": "test_asking_for_a_draft_changes_nothing",
    "KeepsInputList": "test_the_drafter_copies_its_input",
    "SortsInputList": "test_the_drafter_copies_its_input",
    "SharesSequences": "test_sequences_are_drafted_independently",
    "ContinuesOthers": "test_no_tokens_of_others_are_drafted",
    "IgnoresSalt": "test_no_tokens_of_others_are_drafted",
    "IgnoresTenant": "test_no_tokens_of_others_are_drafted",
    "FailsAfterFifty": "test_drafts_stay_the_same_over_sequences",
    "TiresInSequences": "test_drafts_stay_the_same_over_calls",
    "CopiesEverything": "test_step_time_does_not_grow_with_length",
    "RereadsEverything": "test_step_cost_does_not_grow_with_length",
    "ForgetsTheNewest": "test_drafts_equal_the_reference",
}
MODELS = {
    "AnotherFolderEachCall": "test_the_folder_is_absolute_and_stable",
    "RelativeFolder": "test_the_folder_is_absolute_and_stable",
    "HasNoWeights": "test_its_weights_are_complete",
    "GitLFSPointer": "test_its_weights_are_complete",
    "TruncatedWeights": "test_its_weights_are_complete",
    "MissingShard": "test_its_weights_are_complete",
    "HasNoTokenizer": "test_its_tokenizer_encodes_and_decodes_text",
    "UnknownModelType": "test_transformers_reads_its_config",
    "NarrowLogits": "test_its_logits_cover_the_tokenizer",
    "UnregisteredParser": "test_its_parsers_are_registered",
    "TemplateRefuses": "test_its_chat_template_renders_a_question",
}
RESPONSES = {
    "DropsInput": "test_a_response_keeps_every_field",
    "KeepsFirstVersion": "test_a_response_replaces_one_with_its_id",
    "ReturnsNone": "test_an_unknown_id_raises_key_error",
    "NewestFirst": "test_a_conversation_is_one_branch_in_order",
    "MixesBranches": "test_a_conversation_is_one_branch_in_order",
    "DeletesConversation": "test_deleting_a_response_removes_no_other",
    "IgnoresGaps": "test_a_conversation_gap_raises_key_error",
    "IgnoresQueued": "test_unfinished_lists_queued_and_running_responses",
    "FindsTwentyUnfinished": "test_many_responses_are_found_and_purged",
    "PurgesHundred": "test_many_responses_are_found_and_purged",
    "PurgesTurns": "test_purge_removes_conversations_by_last_turn",
    "CountsConversations": "test_purge_removes_conversations_by_last_turn",
    "NeverEvicts": "test_the_least_recently_continued_conversation_is_evicted",
    "IgnoresInputSize": "test_the_least_recently_continued_conversation_is_evicted",
    "SleepsInPut": "test_no_call_holds_up_the_event_loop",
    "WritesInTwoSteps": "test_concurrent_puts_lose_nothing",
    "ReturnsTheLastTen": "test_a_long_conversation_is_returned_completely",
    "NormalizesIds": "test_an_unknown_id_raises_key_error",
    "LosesDataOnClose": "test_responses_survive_reopening",
}

OBSERVERS = {
    "RefusesErrors": "test_every_end_is_accepted",
    "RefusesEmbeddings": "test_every_task_is_accepted",
    "WritesAscii": "test_odd_text_is_accepted",
    "TakesOneEventACall": "test_events_are_accepted_in_any_batches",
    "DividesByFirstToken": "test_restarted_and_unanswered_requests_are_accepted",
    "RepeatsAName": "test_metrics_have_names_of_their_own",
    "KeepsTheList": "test_the_list_may_be_changed_afterwards",
    "ClosesWhatItNeverOpened": "test_ends_without_events",
    "ComputesForLong": "test_an_event_costs_little",
    "KeepsEveryRequest": "test_ended_requests_are_forgotten",
    "KeepsFailures": "test_ended_requests_are_forgotten",
    "KeepsUntilTheFirstToken": "test_ended_requests_are_forgotten",
    "KeepsTheLastList": "test_the_list_is_not_kept",
    "KeepsEveryId": "test_ended_requests_are_forgotten",
    "LabelsUsers": "test_no_label_is_chosen_by_a_client",
    "CountsAborts": "test_what_is_recorded_equals_the_reference",
}
REQUEST_FIELDS = {
    "HasNoType": "test_the_declaration_is_complete",
    "HasAWrongDefault": "test_the_declaration_is_complete",
    "HasAnUnknownRoute": "test_the_declaration_is_complete",
    "ForgetsToReturn": "test_accepted_values_become_plain_data",
    "ReturnsAnObject": "test_accepted_values_become_plain_data",
    "ReturnsALargeInteger": "test_accepted_values_become_plain_data",
    "ReturnsNaN": "test_accepted_values_become_plain_data",
    "HasAnInfiniteDefault": "test_the_declaration_is_complete",
    "AcceptsWrongValues": "test_refused_values_are_errors",
    "FailsForZero": "test_any_value_of_the_type_is_answered",
    "NamesAnotherField": "test_errors_name_the_field",
    "CountsCalls": "test_equal_values_give_equal_results",
    "ChangesAfterFifty": "test_equal_values_give_equal_results",
    "Sleeps": "test_checking_a_value_takes_no_time",
    "MakesMuch": "test_accepted_values_become_plain_data",
    "KeepsEveryValue": "test_values_are_forgotten",
}

MIDDLEWARE = {
    "HidesErrors": "test_a_reply_passes",
    "GrowsBody": "test_bodies_of_any_size_pass",
    "DropsTheBody": "test_bodies_of_any_size_pass",
    "BuffersStreams": "test_streams_are_not_held_back",
    "HoldsTheStart": "test_skipped_events_have_a_start",
    "SwallowsErrors": "test_errors_of_the_application_pass",
    "EndsBrokenStreams": "test_errors_in_a_stream_pass",
    "IgnoresCancelling": "test_a_cancelled_request_ends",
    "SharesOneSend": "test_concurrent_requests_stay_apart",
    "ReadsAscii": "test_odd_headers_break_nothing",
    "TakesHeadersForADict": "test_repeated_headers_of_replies_are_kept",
    "NormalizesPaths": "test_the_path_stays_after_authentication",
    "Computes": "test_a_request_costs_little",
    "KeepsPaths": "test_ended_requests_are_forgotten",
    "MarksErrorsOnly": "test_the_replies_of_the_examples_are_sent",
}

AUTHENTICATORS = {
    "CapitalNames": "test_header_names_are_lower_case",
    "LetsNobodyPass": "test_nobody_is_not_recognized",
    "TrustsUnsigned": "test_odd_credentials_are_not_recognized",
    "ReadsAscii": "test_random_credentials_are_not_recognized",
    "ReturnsTrue": "test_a_known_client_is_recognized",
    "AlreadyExpired": "test_a_known_client_is_recognized",
    "ExpiresInMilliseconds": "test_a_known_client_is_recognized",
    "GivesATupleOfScopes": "test_a_known_client_is_recognized",
    "ComparesStart": "test_changed_credentials_are_not_recognized",
    "IgnoresCase": "test_changed_credentials_are_not_recognized",
    "TakesOneOfTwo": "test_repeated_headers_are_not_recognized",
    "SharesTheToken": "test_concurrent_requests_stay_apart",
    "SharesTheClient": "test_concurrent_requests_stay_apart",
    "KeepsAnHourLonger": "test_answers_hold_until_they_expire",
    "IgnoresExpiry": "test_expired_credentials_are_not_recognized",
    "KeepsEveryToken": "test_credentials_are_not_kept",
    "Blocks": "test_the_event_loop_is_not_blocked",
    "QuotesTheToken": "test_secrets_are_not_shown",
    "LogsTheToken": "test_secrets_are_not_shown",
    "ListsScopes": "test_a_known_client_is_recognized",
    "InventsScopes": "test_a_known_client_is_recognized",
    "LimitsAdministrators": "test_a_known_client_is_recognized",
    "ForgetsScopes": "test_a_known_client_is_recognized",
    "NamesLimits": "test_a_known_client_is_recognized",
    "LimitsToNothing": "test_a_known_client_is_recognized",
    "LimitsInFractions": "test_a_known_client_is_recognized",
    "GivesAdministratorsARate": "test_a_known_client_is_recognized",
    "ForgetsLimits": "test_a_known_client_is_recognized",
}

EVICTION = {
    "DividesByHits": "test_every_rank_is_a_finite_number",
    "EvictsNewestFirst": "test_a_use_never_lowers_a_rank",
    "EvictsPopularFirst": "test_a_hit_never_lowers_a_rank",
    "EvictsSmallestFirst": "test_losing_pages_never_lowers_a_rank",
    "RanksByAge": "test_an_unchanged_leaf_keeps_its_rank",
    "KeepsHitsForever": "test_every_rank_is_a_finite_number",
    "FailsLate": "test_a_cache_never_gives_up_the_rule",
    "HalvesHits": "test_every_rank_is_a_finite_number",
    "KeepsLastLeaf": "test_leaves_are_not_kept",
    "KeepsEverySalt": "test_nothing_is_kept_of_evicted_leaves",
    "KeepsEveryTime": "test_nothing_is_kept_of_evicted_leaves",
    "ComputesForLong": "test_a_rank_costs_little",
    "ExpiresAtText": "test_every_expiry_is_none_or_a_time",
    "ExpiresByDuration": "test_a_new_leaf_does_not_expire_at_once",
    "ExpiresSoonerIfUsed": "test_a_use_never_hastens_expiry",
    "ExpiresByTheDay": "test_expiry_is_on_the_clock_of_the_leaf",
    "IgnoresHits": "test_leaves_leave_in_the_stated_order",
    "ExpiresTwice": "test_leaves_expire_at_the_stated_time",
}

LOGITS_PROCESSORS = {
    "CentersOverTheBatch": "test_a_row_does_not_depend_on_others",
    "RemembersTokens": "test_the_same_rows_give_the_same_logits",
    "KeepsOnlySureTokens": "test_every_row_keeps_an_allowed_token",
    "LoopsOverRows": "test_many_rows_take_few_operations",
    "AsksForEverything": "test_only_requests_that_ask_have_a_state",
    "NeverAsks": "test_only_requests_that_ask_have_a_state",
    "PopsItsField": "test_begin_does_not_change_the_request",
    "ReturnsDoubles": "test_the_result_is_logits_of_the_same_rows",
    "SqueezesOneRow": "test_the_result_is_logits_of_the_same_rows",
    "ReturnsNothing": "test_the_result_is_logits_of_the_same_rows",
    "Standardizes": "test_every_row_keeps_an_allowed_token",
    "ForbidsLineBreaks": "test_any_token_may_be_the_only_allowed_one",
    "CollectsRequests": "test_ended_requests_are_forgotten",
    "NeedsThreeTokens": "test_short_and_long_rows_are_processed",
    "TakesPaddingForTokens": "test_a_row_does_not_depend_on_others",
    "ChangesAfterManyCalls": "test_the_same_rows_give_the_same_logits",
    "CountsInItsState": "test_a_state_is_not_changed",
    "DrawsFromTorch": "test_randomness_comes_from_the_row_alone",
    "DrawsFromPython": "test_randomness_comes_from_the_row_alone",
    "ReadsANumber": "test_nothing_waits_for_the_device",
    "IndexesByMask": "test_nothing_waits_for_the_device",
    "AsksForUndeclaredTokens": "test_tokens_are_asked_for_only_if_declared",
    "PushesTwice": "test_logits_equal_the_reference",
}
WEIGHT_LOADERS = {
    "LeavesALock": "test_the_folder_is_not_changed",
    "FollowsNames": "test_names_that_lead_out_are_refused",
    "RefusesRelativeNames": "test_names_that_lead_out_are_refused",
    "RefusesLinks": "test_linked_files_are_read",
    "ListsFloat32": "test_numbers_are_read_bit_by_bit",
    "ReplacesNaN": "test_numbers_are_read_bit_by_bit",
    "CachesByName": "test_folders_are_not_confused",
    "MapsForWriting": "test_changes_do_not_reach_the_files",
    "RecognizesAnything": "test_other_folders_are_not_recognized",
    "WantsItsFolderName": "test_its_own_folders_are_recognized",
    "RecognizesByContents": "test_recognizing_reads_little",
    "SkipsScalars": "test_each_tensor_is_listed_once",
    "RepeatsNames": "test_each_tensor_is_listed_once",
    "ReadsInOrder": "test_tensors_are_read_in_any_order",
    "ReadsToList": "test_listing_reads_no_numbers",
    "KeepsTensors": "test_returned_tensors_are_not_kept",
    "ReusesOneBuffer": "test_tensors_do_not_share_memory",
    "ZeroesOnClose": "test_tensors_stay_valid_after_close",
    "NamesTheIndexOnly": "test_its_files_are_all_it_reads",
    "NamesThePartsOnly": "test_its_files_are_all_it_reads",
    "NamesNothingThatChanges": "test_other_numbers_are_another_version",
    "PadsShortFiles": "test_damaged_files_are_refused",
    "LeaksErrors": "test_damaged_files_are_refused",
    "ReadsPickles": "test_no_code_of_the_files_is_run",
    "WritesTwoLines": "test_damaged_files_are_refused",
    "ListsAThousand": "test_thousands_of_tensors_are_listed",
    "LeavesFilesOpen": "test_closing_releases_the_files",
    "LeavesFilesMapped": "test_closing_releases_the_files",
}
QUANTIZATION_SCHEMES = {
    "PromisesTooMuch": "test_outputs_are_within_the_tolerance",
    "MixesLongPrompts": "test_a_row_does_not_depend_on_others",
    "LosesLateOutputs": "test_each_output_is_near_its_own",
    "CopiesIntoAnArray": "test_layers_hold_no_other_memory",
    "ScalesTheBias": "test_the_weight_is_neither_changed_nor_kept",
    "ForgetsTheScales": "test_memory_is_what_num_bytes_says",
    "KeepsTheWeight": "test_the_weight_is_neither_changed_nor_kept",
    "ScalesAllRowsAlike": "test_a_row_does_not_depend_on_others",
    "ForgetsTheBias": "test_outputs_are_within_the_tolerance",
    "ComputesInDoubles": "test_outputs_are_within_the_tolerance",
    "DropsTheBatch": "test_outputs_are_within_the_tolerance",
    "FailsForManyRows": "test_outputs_are_within_the_tolerance",
    "CachesTheWeight": "test_the_weight_is_neither_changed_nor_kept",
    "QuantizesInPlace": "test_the_weight_is_neither_changed_nor_kept",
    "StoresFloats": "test_large_weights_become_smaller",
    "ChangesAfterManyCalls": "test_the_same_inputs_give_the_same_outputs",
    "RoundsAtRandom": "test_the_same_inputs_give_the_same_outputs",
    "ScalesInputsInPlace": "test_a_module_does_not_change_its_inputs",
    "SharesItsScales": "test_layers_are_quantized_independently",
    "DividesByZero": "test_unusual_weights_are_quantized",
    "ClipsLargeWeights": "test_unusual_weights_are_quantized",
    "CopiesTheHead": "test_embeddings_share_the_weight_of_the_head",
    "MirrorsEmbeddings": "test_embeddings_share_the_weight_of_the_head",
    "CountsHeadsLess": "test_models_are_quantized_as_planned",
}
QUANTIZED_FORMATS = {
    "ForgetsTheScales": "test_weights_are_what_tensors_stand_for",
    "TakesRotatedWeights": "test_settings_to_refuse_are_refused",
    "RoundsToHalf": "test_weights_are_what_tensors_stand_for",
    "TakesBiases": "test_other_tensors_are_left_alone",
    "ScalesAllRowsAlike": "test_modules_treat_rows_alike",
    "ScalesInPlace": "test_tensors_are_not_changed",
    "CachesByName": "test_checkpoints_are_not_confused",
    "TakesMissingScalesForOne": "test_missing_tensors_are_refused",
    "RaisesKeyError": "test_missing_tensors_are_refused",
    "RepeatsScales": "test_other_shapes_are_refused",
    "TakesAnyDtype": "test_other_dtypes_are_refused",
    "IgnoresItsBits": "test_other_settings_are_refused",
    "ReturnsHalf": "test_weights_are_what_tensors_stand_for",
    "Transposes": "test_weights_are_what_tensors_stand_for",
    "SkipsLargeLayers": "test_weights_are_what_tensors_stand_for",
    "ReusesABuffer": "test_weights_share_no_memory",
    "IgnoresInnerSettings": "test_other_settings_are_refused",
    "RoundsDown": "test_modules_round_inputs_as_stated",
    "ReturnsFloats": "test_modules_keep_the_dtype_and_shape",
}
MODEL_ADAPTERS = {
    "ForgetsTheScale": "test_the_logits_of_several_sequences_stay_the_same",
    "TakesOneTokenForAPrompt": "test_later_steps_continue_a_sequence",
    "MixesNeighbors": "test_a_sequence_does_not_depend_on_others",
    "KeepsTheFirstModel": "test_an_adapter_adapts_models_independently",
    "NamesTypesInAList": "test_each_model_type_has_a_config",
    "NamesAnotherType": "test_each_model_type_has_a_config",
    "RefusesItsConfigs": "test_supported_configs_are_only_read",
    "ChangesTheConfig": "test_supported_configs_are_only_read",
    "ForgetsWindows": "test_the_logits_of_several_sequences_stay_the_same",
    "WidensWindows": "test_the_logits_of_several_sequences_stay_the_same",
    "AttendsTwice": "test_the_logits_of_several_sequences_stay_the_same",
    "LeavesTheLastLayer": "test_the_logits_of_several_sequences_stay_the_same",
    "ComputesTheRowItself": "test_the_logits_of_several_sequences_stay_the_same",
    "CountsPositionsItself": "test_later_steps_continue_a_sequence",
    "AdaptsOneModel": "test_an_adapter_adapts_models_independently",
    "AddsBuffers": "test_weights_keep_their_names_and_values",
    "RoundsWeights": "test_weights_keep_their_names_and_values",
}
TOKEN_SAMPLERS = {
    "IgnoresTemperature": "test_draws_select_tokens_by_probability",
    "IgnoresTopK": "test_draws_select_tokens_by_probability",
    "TakesTheFirstTemperature": "test_each_row_has_its_own_numbers",
    "TakesTheFirstTopK": "test_each_row_has_its_own_numbers",
    "IgnoresTopP": "test_draws_select_tokens_by_probability",
    "IgnoresMinP": "test_draws_select_tokens_by_probability",
    "TakesTheLikeliest": "test_draws_select_tokens_by_probability",
    "SkipsFiltersOfLargeVocabularies": "test_tokens_pass_the_filters_of_their_rows",
    "DrawsItself": "test_rows_do_not_depend_on_other_rows",
    "SharesTheFirstDraw": "test_rows_do_not_depend_on_other_rows",
    "DividesInPlace": "test_the_logits_stay_unchanged",
    "ReturnsInt32": "test_tokens_are_ids_on_the_device",
    "DrawsForbidden": "test_forbidden_tokens_are_never_drawn",
    "FailsWithNaN": "test_rows_without_probabilities_get_valid_tokens",
}

ROUTERS = {
    "ForgetsTies": "test_choices_equal_the_reference",
    "ReturnsTheNumber": "test_the_choice_is_one_of_the_engines",
    "TakesNumbersForPlaces": "test_missing_engines_are_not_chosen",
    "SticksToItsFirstChoice": "test_missing_engines_are_not_chosen",
    "DividesBySpeed": "test_engines_not_measured_yet_are_no_fault",
    "PrefersTheFirst": "test_idle_engines_all_get_requests",
    "SortsInPlace": "test_the_engines_are_not_changed",
    "CountsInBytes": "test_extreme_numbers_are_no_fault",
    "KeepsEverySession": "test_nothing_is_kept_of_ended_requests",
    "PinsTenantsToPlaces": "test_equal_choices_do_not_depend_on_places",
    "Ponders": "test_a_choice_costs_little",
}

ADAPTER_SOURCES = {
    "ReturnsTheWeights": "test_folders_are_absolute_and_hold_both_files",
    "ReturnsRelativePaths": "test_folders_are_absolute_and_hold_both_files",
    "CopiesEachTime": "test_an_adapter_is_found_again",
    "RaisesForUnknownNames": "test_unknown_names_give_none",
    "LeavesTheRoot": "test_hostile_names_find_nothing",
    "TakesPartsOfPaths": "test_paths_from_an_adapter_find_nothing",
    "IgnoresCase": "test_paths_from_an_adapter_find_nothing",
    "FollowsLinks": "test_folders_are_in_the_root",
    "KeepsTheName": "test_several_threads_may_ask",
    "KeepsUnknownNames": "test_nothing_is_kept_of_unknown_names",
}

MEDIA_PROCESSORS = {
    "ShortKeys": "test_spans_begin_and_end_with_rows",
    "SpansTooLong": "test_spans_begin_and_end_with_rows",
    "RowsBeforeImages": "test_rows_are_in_spans_alone",
    "KeysOfSizes": "test_keys_tell_images_apart",
    "KeysOfTheTop": "test_keys_tell_images_apart",
    "KeepsOneOfEachSize": "test_pixels_of_earlier_images_never_return",
    "KeysOfCalls": "test_keys_tell_images_apart",
    "DependsOnCompany": "test_other_images_change_nothing",
    "AcceptsAnyCount": "test_placeholders_must_match_images",
    "FailsOnSmallImages": "test_odd_sizes_are_no_fault",
    "UnreadableTensors": "test_tensors_are_readable",
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
    "broken_observers": OBSERVERS,
    "broken_middleware": MIDDLEWARE,
    "broken_authenticators": AUTHENTICATORS,
    "broken_request_fields": REQUEST_FIELDS,
    "broken_eviction": EVICTION,
    "broken_logits_processors": LOGITS_PROCESSORS,
    "broken_weight_loaders": WEIGHT_LOADERS,
    "broken_quantization_schemes": QUANTIZATION_SCHEMES,
    "broken_quantized_formats": QUANTIZED_FORMATS,
    "broken_model_adapters": MODEL_ADAPTERS,
    "broken_token_samplers": TOKEN_SAMPLERS,
    "broken_routers": ROUTERS,
    "broken_adapter_sources": ADAPTER_SOURCES,
    "broken_media_processors": MEDIA_PROCESSORS,
}
NUM_TRIED = of_length(1, 100)  # of each kit
NUM_PROCESSES = of_length(1, len(BROKEN))  # all together may take longer than a test may
ENV = {**os.environ, "CI": "1"}  # with it, pytest reports all differences of two values
WHY = r"^E +((AssertionError: )?assert .* (==|<=) |AssertionError: Tensor-likes are not close)"


# Shows where a process hangs that has run its tests and does not end.
RUN = """
import faulthandler, sys
import pytest
status = pytest.main(sys.argv[1:])
faulthandler.dump_traceback_later(60, exit=True)
sys.exit(status)
"""


@pytest.mark.slow
@pytest.mark.parametrize("first", range(NUM_PROCESSES))
def test_each_broken_component_fails_the_matching_test(first: int, tmp_path: Path) -> None:
    tried = {
        (module, kind): test
        for module in list(BROKEN)[first::NUM_PROCESSES]
        for kind, test in list(BROKEN[module].items())[:NUM_TRIED]
    }
    options = [
        "-p",
        "no:cacheprovider",
        "--hypothesis-profile",
        "unshrunk",
        "-o",
        "faulthandler_timeout=240",  # sooner than this process's own, so that a test that hangs is shown
        f"--junitxml={tmp_path}/found.xml",
    ]
    tests = [f"{HERE / module}.py::Test{kind}::{test}" for (module, kind), test in tried.items()]
    command = [sys.executable, "-c", RUN, "-q", *options, *tests]
    run = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=ENV
    )
    said = run.stdout
    assert (tmp_path / "found.xml").exists(), said
    assert "Timeout (0:01:00)" not in said, said
    found: dict[tuple[str, str], str] = {}
    reasons = dict.fromkeys((module for module, _ in tried), "")
    for case in ElementTree.parse(tmp_path / "found.xml").iter("testcase"):
        assert case.find("error") is None, said
        if (failure := case.find("failure")) is not None:
            *_, module, kind = case.attrib["classname"].split(".")
            found[module, kind.removeprefix("Test")] = case.attrib["name"].partition("[")[0]
            reasons[module] += failure.text or ""
    assert found == tried
    # The first few of a kit may all raise errors of their own.
    bare = [module for module, texts in reasons.items() if not re.search(WHY, texts, re.MULTILINE)]
    assert LENGTH == "short" or bare == []


def test_classes_are_exported_without_importing_torch(fresh_python: Callable[..., str]) -> None:
    code = "import sys, llmfw.core.testing as kit\nkit.SchedulePolicyTests, kit.ToolParserTests, kit.FileStoreTests\n"
    assert fresh_python(code + "print({'torch', 'transformers'} & sys.modules.keys())") == "set()\n"
    assert set(kit.__all__) == set(kit._HOMES)
    assert all(isinstance(getattr(kit, name), type) for name in kit.__all__)
