-- One name for each thing, the same as in the code, the settings and the output of commands.
DROP TRIGGER mined_gone;
DROP INDEX mined_family;

ALTER TABLE mined RENAME TO mining_results;
ALTER TABLE mined_calls RENAME TO mining_calls;
ALTER TABLE candidates RENAME COLUMN place TO location;
ALTER TABLE attempts RENAME TO call_type_counts;
ALTER TABLE call_type_counts RENAME COLUMN work TO call_type;
ALTER TABLE tallies RENAME TO candidate_counts;
ALTER TABLE sorts RENAME TO call_type_totals;
ALTER TABLE call_type_totals RENAME COLUMN work TO call_type;
ALTER TABLE summed RENAME TO counts_state;
ALTER TABLE counts_state RENAME COLUMN one TO id;

CREATE INDEX mining_results_family ON mining_results (family);
CREATE TRIGGER mining_results_deleted AFTER DELETE ON mining_results BEGIN
    DELETE FROM candidates WHERE session = OLD.session;
    DELETE FROM call_type_counts WHERE session = OLD.session;
    DELETE FROM mining_calls WHERE session = OLD.session;
END;

ALTER TABLE judged RENAME TO judged_sessions;
ALTER TABLE calls RENAME COLUMN work TO tool_kind;
ALTER TABLE calls RENAME COLUMN answered TO result_position;

ALTER TABLE trials RENAME TO experiments;
UPDATE experiments SET settings = replace(settings, '"smallest":', '"min_effect":');
ALTER TABLE assignments RENAME COLUMN trial TO experiment;

ALTER TABLE messages RENAME COLUMN answers TO tool_call_id;
ALTER TABLE sessions RENAME COLUMN tokens_read TO tokens_cache_read;
ALTER TABLE sessions RENAME COLUMN tokens_write TO tokens_cache_write;
ALTER TABLE usage RENAME COLUMN tokens_read TO tokens_cache_read;
ALTER TABLE usage RENAME COLUMN tokens_write TO tokens_cache_write;
ALTER TABLE imports RENAME COLUMN time TO imported_at;

ALTER TABLE routes RENAME COLUMN shown TO listed_sessions;
ALTER TABLE leases RENAME COLUMN runner TO instance;
ALTER TABLE leases RENAME COLUMN until TO expires;
ALTER TABLE homes RENAME TO home_chats;
