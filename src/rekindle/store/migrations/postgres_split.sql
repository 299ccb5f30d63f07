-- What splits titles, in the schema of a store and in that of the tables of tenants.

CREATE OR REPLACE FUNCTION split_title(title TEXT) RETURNS TEXT[] LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(array_agg(DISTINCT substr(title, start, 3)), '{}')
    FROM generate_series(1, length(title) - 2) start
$$;
