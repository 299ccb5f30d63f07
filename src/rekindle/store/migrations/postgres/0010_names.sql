-- The same as in SQLite; the reasons stand there. The functions of a trigger keep the names of tables
-- as text, and constraints and sequences keep theirs when a table is renamed.
DROP TRIGGER mined_gone ON mined;
DROP FUNCTION mined_gone();

ALTER TABLE mined RENAME TO mining_results;
ALTER INDEX mined_pkey RENAME TO mining_results_pkey;
ALTER INDEX mined_family RENAME TO mining_results_family;
ALTER TABLE mining_results RENAME CONSTRAINT mined_session_fkey TO mining_results_session_fkey;
ALTER TABLE mined_calls RENAME TO mining_calls;
ALTER INDEX mined_calls_pkey RENAME TO mining_calls_pkey;
ALTER TABLE candidates RENAME COLUMN place TO location;
ALTER TABLE attempts RENAME TO call_type_counts;
ALTER INDEX attempts_pkey RENAME TO call_type_counts_pkey;
ALTER TABLE call_type_counts RENAME COLUMN work TO call_type;
ALTER TABLE tallies RENAME TO candidate_counts;
ALTER INDEX tallies_pkey RENAME TO candidate_counts_pkey;
ALTER TABLE sorts RENAME TO call_type_totals;
ALTER INDEX sorts_pkey RENAME TO call_type_totals_pkey;
ALTER TABLE call_type_totals RENAME COLUMN work TO call_type;
ALTER TABLE summed RENAME TO counts_state;
ALTER INDEX summed_pkey RENAME TO counts_state_pkey;
ALTER TABLE counts_state RENAME CONSTRAINT summed_one_check TO counts_state_id_check;
ALTER TABLE counts_state RENAME COLUMN one TO id;

CREATE FUNCTION mining_results_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM candidates WHERE session = OLD.session;
    DELETE FROM call_type_counts WHERE session = OLD.session;
    DELETE FROM mining_calls WHERE session = OLD.session;
    RETURN NULL;
END $$;

CREATE TRIGGER mining_results_deleted AFTER DELETE ON mining_results
    FOR EACH ROW EXECUTE FUNCTION mining_results_deleted();

ALTER TABLE judged RENAME TO judged_sessions;
ALTER INDEX judged_pkey RENAME TO judged_sessions_pkey;
ALTER TABLE judged_sessions RENAME CONSTRAINT judged_session_fkey TO judged_sessions_session_fkey;
ALTER TABLE calls RENAME COLUMN work TO tool_kind;
ALTER TABLE calls RENAME COLUMN answered TO result_position;

ALTER TABLE trials RENAME TO experiments;
ALTER INDEX trials_pkey RENAME TO experiments_pkey;
ALTER INDEX trials_name_key RENAME TO experiments_name_key;
ALTER SEQUENCE trials_num_seq RENAME TO experiments_num_seq;
UPDATE experiments SET settings = replace(settings, '"smallest":', '"min_effect":');
ALTER TABLE assignments RENAME COLUMN trial TO experiment;
ALTER TABLE assignments RENAME CONSTRAINT assignments_trial_fkey TO assignments_experiment_fkey;

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
ALTER INDEX homes_pkey RENAME TO home_chats_pkey;
