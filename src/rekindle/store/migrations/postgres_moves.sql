-- What fills `project_numbers`, in the schema of a store and in that of the tables of tenants.

CREATE OR REPLACE FUNCTION number_project(key TEXT, num BIGINT) RETURNS INTEGER LANGUAGE sql STABLE AS $$
    SELECT ('x' || left(encode(sha256(convert_to(coalesce(key, 'session ' || num), 'UTF8')), 'hex'), 7)
        )::bit(28)::integer + 2
$$;

-- A trigger, since older versions move sessions, too.
CREATE OR REPLACE FUNCTION add_project_number() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format(
        'WITH moved AS (SELECT %1$I.number_project($1, $3) AS project, %1$I.number_project($2, $3) AS earlier)'
        ' INSERT INTO %1$I.project_numbers (project, earlier) SELECT * FROM moved WHERE project <> earlier'
        ' UNION SELECT m.project, n.earlier FROM moved m JOIN %1$I.project_numbers n ON n.project = m.earlier'
        ' WHERE n.earlier <> m.project ON CONFLICT DO NOTHING', TG_TABLE_SCHEMA
    ) USING coalesce(NEW.project, NEW.repository, 'folder:' || NEW.cwd),
        coalesce(OLD.project, OLD.repository, 'folder:' || OLD.cwd), NEW.num;
    RETURN NULL;
END
$$;

CREATE TRIGGER sessions_moved AFTER UPDATE OF project, repository, cwd ON sessions FOR EACH ROW
    WHEN (OLD.next_position > 0 AND coalesce(NEW.project, NEW.repository, 'folder:' || NEW.cwd)
        IS DISTINCT FROM coalesce(OLD.project, OLD.repository, 'folder:' || OLD.cwd))
    EXECUTE FUNCTION add_project_number();
