-- Projects in the search index of PostgreSQL, for a new database and for the upgrade to version 21.

-- The numbers that messages in sessions of a project may have from the projects they were in earlier.
CREATE TABLE project_numbers (
    project INTEGER NOT NULL,
    earlier INTEGER NOT NULL,
    PRIMARY KEY (project, earlier)
);
