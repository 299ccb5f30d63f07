-- The same as in SQLite; see the comments there.
ALTER TABLE candidates DROP CONSTRAINT candidates_session_fkey;
ALTER TABLE attempts DROP CONSTRAINT attempts_session_fkey;
ALTER TABLE mined_calls DROP CONSTRAINT mined_calls_session_fkey;

CREATE FUNCTION mined_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM candidates WHERE session = OLD.session;
    DELETE FROM attempts WHERE session = OLD.session;
    DELETE FROM mined_calls WHERE session = OLD.session;
    RETURN NULL;
END $$;

CREATE TRIGGER mined_gone AFTER DELETE ON mined FOR EACH ROW EXECUTE FUNCTION mined_gone();
