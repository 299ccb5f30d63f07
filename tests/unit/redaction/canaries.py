"""Over two hundred kinds of secrets, all invented, each in a text as it occurs in sessions.

Values are drawn by lot from the shapes that providers use, with a fixed seed. First letters are
written in two parts, so that no scanner takes this file for a leak.
"""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

ALNUM = string.ascii_letters + string.digits
UPPER = string.ascii_uppercase + string.digits
LOWER = string.ascii_lowercase + string.digits
HEX = "0123456789abcdef"
WORD = ALNUM + "_-"


class Canary(NamedTuple):
    """A text, and the pieces of it that must not be found any more."""

    kind: str
    text: str
    values: tuple[str, ...]


class Lot:
    """Draws what the tables below ask for."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def draw(self, alphabet: str, size: int) -> str:
        """Random text that has a letter and, where the alphabet has them, a digit in it."""
        while True:
            text = "".join(self.random.choices(alphabet, k=size))
            digits = sum(letter.isdigit() for letter in text)
            if size < 6 or (0 < digits < size) or not any(letter.isdigit() for letter in alphabet):
                return (
                    text
                    if text[0] not in "-_" and text[-1] not in "-_"
                    else self.draw(alphabet, size)
                )

    def uuid(self) -> str:
        return "-".join(self.draw(HEX, size) for size in (8, 4, 4, 4, 12))


# name: first letters in two parts, alphabet, size
PROVIDERS: dict[str, tuple[str, str, str, int]] = {
    "aws": ("AK", "IA", UPPER, 16),
    "aws-temporary": ("AS", "IA", UPPER, 16),
    "google": ("AI", "za", WORD, 35),
    "google-oauth": ("ya", "29.", WORD, 80),
    "google-client": ("GOC", "SPX-", WORD, 28),
    "google-refresh": ("1/", "/0", WORD, 60),
    "digitalocean": ("dop", "_v1_", HEX, 64),
    "alibaba": ("LT", "AI", ALNUM, 20),
    "tencent": ("AK", "ID", ALNUM, 32),
    "fly": ("fo", "1_", WORD, 43),
    "netlify": ("nf", "p_", ALNUM, 40),
    "vercel": ("vc", "p_", ALNUM, 56),
    "render": ("rn", "d_", ALNUM, 32),
    "scaleway": ("SC", "W", UPPER, 17),
    "planetscale": ("pscale", "_tkn_", WORD, 43),
    "supabase": ("sb", "p_", HEX, 40),
    "neon": ("na", "pi_", LOWER, 64),
    "databricks": ("da", "pi", HEX, 32),
    "pulumi": ("pu", "l-", HEX, 40),
    "cloudflare": ("v1", ".0-", HEX, 24),
    "heroku": ("HR", "KU-", WORD, 60),
    "github": ("gh", "p_", ALNUM, 36),
    "github-app": ("gh", "s_", ALNUM, 36),
    "github-user": ("gh", "u_", ALNUM, 36),
    "github-oauth": ("gh", "o_", ALNUM, 36),
    "github-fine": ("github", "_pat_", ALNUM + "_", 82),
    "gitlab": ("gl", "pat-", WORD, 20),
    "gitlab-runner": ("gl", "rt-", WORD, 20),
    "gitlab-deploy": ("gl", "dt-", WORD, 20),
    "bitbucket": ("AT", "BB", ALNUM, 32),
    "atlassian": ("ATA", "TT3xFf", WORD, 180),
    "npm": ("np", "m_", ALNUM, 36),
    "pypi": ("py", "pi-", WORD, 160),
    "rubygems": ("ruby", "gems_", HEX, 48),
    "crates": ("ci", "o", ALNUM, 32),
    "nuget": ("oy", "2", LOWER, 43),
    "clojars": ("CLO", "JARS_", LOWER, 60),
    "docker": ("dckr", "_pat_", WORD, 27),
    "artifactory": ("AK", "Cp", ALNUM, 69),
    "buildkite": ("bk", "ua_", HEX, 40),
    "circleci": ("CCI", "PAT_", WORD, 60),
    "sonar": ("sq", "p_", HEX, 40),
    "doppler": ("dp", ".pt.", ALNUM, 43),
    "vault": ("hv", "s.", WORD, 90),
    "old-vault": ("s", ".", ALNUM, 24),
    "anthropic": ("sk-", "ant-", WORD, 95),
    "openai": ("sk", "-", ALNUM, 48),
    "openai-project": ("sk-", "proj-", WORD, 124),
    "openai-service": ("sk-", "svcacct-", WORD, 100),
    "openrouter": ("sk-", "or-v1-", HEX, 64),
    "huggingface": ("h", "f_", ALNUM, 34),
    "replicate": ("r", "8_", ALNUM, 37),
    "groq": ("gs", "k_", ALNUM, 52),
    "xai": ("xa", "i-", ALNUM, 80),
    "perplexity": ("pp", "lx-", ALNUM, 48),
    "nvidia": ("nv", "api-", WORD, 64),
    "fireworks": ("f", "w_", ALNUM, 24),
    "cerebras": ("cs", "k-", LOWER, 48),
    "tavily": ("tv", "ly-", ALNUM, 32),
    "pinecone": ("pc", "sk_", ALNUM, 70),
    "langsmith": ("lsv2", "_pt_", HEX, 32),
    "jina": ("ji", "na_", ALNUM, 60),
    "elevenlabs": ("s", "k_", HEX, 48),
    "e2b": ("e2", "b_", HEX, 40),
    "firecrawl": ("f", "c-", HEX, 32),
    "wandb": ("wandb", "_v1_", WORD, 70),
    "together": ("tgp", "_v1_", WORD, 43),
    "slack-bot": ("xo", "xb-", ALNUM + "-", 50),
    "slack-user": ("xo", "xp-", ALNUM + "-", 60),
    "slack-app": ("xa", "pp-1-A", UPPER, 60),
    "matrix": ("sy", "t_", WORD, 40),
    "mailgun": ("ke", "y-", HEX, 32),
    "postman": ("PM", "AK-", HEX, 24),
    "twilio": ("S", "K", HEX, 32),
    "facebook": ("EA", "A", ALNUM, 120),
    "brevo": ("xkey", "sib-", HEX, 64),
    "resend": ("r", "e_", ALNUM, 8),
    "stripe": ("sk", "_live_", ALNUM, 24),
    "stripe-test": ("sk", "_test_", ALNUM, 24),
    "stripe-restricted": ("rk", "_live_", ALNUM, 24),
    "stripe-hook": ("wh", "sec_", ALNUM, 32),
    "square": ("sq0", "atp-", WORD, 22),
    "shopify": ("shp", "at_", HEX, 32),
    "razorpay": ("rzp", "_live_", ALNUM, 14),
    "flutterwave": ("FLW", "SECK-", LOWER, 32),
    "easypost": ("EZ", "AK", ALNUM, 54),
    "duffel": ("duffel", "_live_", WORD, 43),
    "shippo": ("shippo", "_live_", HEX, 40),
    "notion": ("nt", "n_", ALNUM, 46),
    "old-notion": ("sec", "ret_", ALNUM, 43),
    "linear": ("lin", "_api_", ALNUM, 40),
    "figma": ("fi", "gd_", WORD, 40),
    "typeform": ("tf", "p_", ALNUM, 44),
    "contentful": ("CF", "PAT-", WORD, 43),
    "sentry": ("sn", "tryu_", HEX, 64),
    "newrelic": ("NR", "AK-", UPPER, 27),
    "grafana": ("gl", "sa_", ALNUM, 41),
    "grafana-cloud": ("gl", "c_", ALNUM, 60),
    "posthog": ("ph", "x_", ALNUM, 43),
    "prefect": ("pn", "u_", ALNUM, 36),
    "readme": ("rd", "me_", LOWER, 70),
    "tailscale": ("ts", "key-auth-", ALNUM, 30),
    "honeycomb": ("hca", "ik_", LOWER, 58),
    "mailersend": ("ml", "sn.", HEX, 64),
    "age": ("AGE-SECRET", "-KEY-1", UPPER, 58),
    "nkey": ("S", "U", "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 56),
    "algolia": ("algo", "lia_", HEX, 32),
    "instagram": ("IG", "QV", WORD, 120),
}

# How a token comes along: in prose, in a shell, in code, in JSON inside JSON, in an address.
PLACES = (
    "Please use {} from now on.",
    "export SOME_VALUE={}",
    'client = Client("{}")',
    '{{"cmd": "{{\\"header\\": \\"{}\\"}}"}}',
    "GET https://api.example.com/v1?x=1&value={}&y=2",
    "log line\\n{}\\nnext line",
    "x-value: {}",
    "\x1b[32m{}\x1b[0m",
    "value%3D{}%26other",
)

# {p}: a password that is random; {w}: one that is a word; {t}: a long random text; {h}: 40 hex digits
# {b}: base64 of 32 bytes; {u}: a UUID. What is drawn must go.
TEXTS: dict[str, str] = {
    "env-password": "export DB_PASSWORD={p}",
    "env-word": "DB_PASSWORD={w}",
    "env-quoted": "export MYSQL_ROOT_PASSWORD='{p}'",
    "pgpassword": "PGPASSWORD={w} psql -h db -U app",
    "mysql-pwd": "MYSQL_PWD={p} mysql -u root",
    "env-token": "CI_JOB_TOKEN={t}",
    "env-api-key": "SOME_API_KEY={t} python run.py",
    "dotenv-secret": "# .env\nSECRET_KEY={t}\nDEBUG=1",
    "python": 'password = "{w}"',
    "python-typed": 'password: str = "{p}"',
    "python-keyword": 'connect(host="db", password="{w}", port=5432)',
    "python-environ": 'os.environ["API_KEY"] = "{t}"',
    "python-dict": "{{'user': 'ada', 'password': '{w}'}}",
    "python-tuple": 'auth=("password", "{p}")',
    "python-joined": 'api_key = "{t}" + "{t}"',
    "python-lines": 'secret = (\n    "{t}"\n    "{t}"\n)',
    "javascript": "const apiKey = '{t}';",
    "typescript": "const password: string = '{p}';",
    "javascript-object": "{{ user: 'ada', pass: '{p}', clientSecret: \"{t}\" }}",
    "go": 'dbPassword := "{p}"',
    "rust": 'let api_token = "{t}";',
    "java": 'String accessToken = "{t}";',
    "java-setter": 'ds.setPassword("{p}");',
    "php": "define('DB_PASSWORD', '{p}');",
    "ruby": 'config.secret_key_base = "{t}"',
    "csharp": 'var secretKey = @"{t}";',
    "yaml": "db:\n  user: ada\n  password: {w}\n  port: 5432",
    "yaml-quoted": 'secret: "{t}"',
    "yaml-block": "private_key: |\n  {t}\n  {t}\nnext: 1",
    "yaml-env-list": "- name: DB_PASSWORD\n  value: {p}",
    "toml": '[auth]\ntoken = "{t}"',
    "ini": "[client]\nuser=root\npassword={w}",
    "ini-spaces": "[db]\npassword = {p}",
    "properties": "spring.datasource.password={p}",
    "json": '{{"username": "ada", "password": "{w}"}}',
    "json-number": '{{"password": 73920184}}',
    "json-nested": '{{"arguments": "{{\\"password\\": \\"{p}\\"}}"}}',
    "json-twice-nested": '{{"a": "{{\\"b\\": \\"{{\\\\\\"secret\\\\\\": \\\\\\"{t}\\\\\\"}}\\"}}"}}',
    "json-pair": '{{"name": "API_KEY", "value": "{t}"}}',
    "html-escaped": "&quot;password&quot;:&quot;{p}&quot;",
    "unicode-escaped": "password\\u003d{p}\\u0026x",
    "percent-encoded": "user%3Dada%26password%3D{p}%26x%3D1",
    "xml": "<server><password>{w}</password></server>",
    "xml-attribute": '<add key="DbPassword" value="{p}"/>',
    "terraform": 'variable "x" {{}}\nmaster_password = "{p}"',
    "dockerfile": "ENV APP_SECRET={p}",
    "compose": "environment:\n  - POSTGRES_PASSWORD={w}",
    "helm": "helm install x --set auth.password={p}",
    "option-space": "tool --password {w} --verbose",
    "option-equals": "tool --api-key={t}",
    "option-token": "deploy --token {t} --now",
    "option-continued": "tool --password \\\n  {p} \\\n  --verbose",
    "option-secret": "tool --client-secret '{p}'",
    "mysql": "mysql -u root -p{p} -h db",
    "mysqldump": "mysqldump -uroot -p'{p}' app > x.sql",
    "sshpass": "sshpass -p {w} ssh ada@server",
    "sshpass-quoted": "sshpass -p '{p}' ssh ada@server",
    "curl-user": "curl -s -u ada:{w} https://example.com",
    "curl-user-long": 'curl --user "ada:{p}" https://example.com',
    "wget": "wget --user=ada --http-password={p} https://example.com",
    "docker-login": "docker login -u ada -p {p} registry.example.com",
    "docker-login-pipe": "echo {p} | docker login -u ada --password-stdin",
    "redis-cli": "redis-cli -h cache -a {p} ping",
    "mongosh": "mongosh -u ada -p {p} --host db",
    "ldapsearch": "ldapsearch -x -D cn=admin -w {p} -b dc=x",
    "htpasswd": "htpasswd -cb .htpasswd ada {p}",
    "openssl": "openssl enc -aes-256-cbc -pass pass:{p} -in x",
    "zip": "zip -P {p} out.zip in.txt",
    "7z": "7z a -p{p} out.7z in",
    "gpg": "gpg --batch --passphrase {p} -d x.gpg",
    "sudo": "echo {w} | sudo -S apt-get update",
    "chpasswd": "echo 'ada:{p}' | chpasswd",
    "sqlcmd": "sqlcmd -S db -U sa -P {p} -Q 'select 1'",
    "sqlplus": "sqlplus scott/{p}@orcl",
    "smbclient": "smbclient //srv/x -U ada%{p}",
    "lftp": "lftp -u ada,{p} sftp://example.com",
    "kubectl-secret": "kubectl create secret generic x --from-literal=key={p}",
    "aws-configure": "aws configure set aws_secret_access_key {t}",
    "cargo-login": "cargo login {t}",
    "poetry": "poetry config http-basic.private ada {p}",
    "gh-secret": 'gh secret set DEPLOY --body "{t}"',
    "vault-put": "vault kv put secret/app api={p}",
    "net-user": "net user ada {p} /add",
    "xfreerdp": "xfreerdp /u:ada /p:{p} /v:host",
    "wifi": 'nmcli dev wifi connect Home password "{p}"',
    "wpa": 'network={{\n ssid="Home"\n psk="{p}"\n}}',
    "sql-identified": "CREATE USER 'ada'@'%' IDENTIFIED BY '{w}';",
    "sql-password": "ALTER ROLE ada WITH PASSWORD '{p}';",
    "heredoc-netrc": "cat > ~/.netrc <<EOF\nmachine api.example.com\nlogin ada\npassword {w}\nEOF",
    "netrc-line": "machine api.example.com login ada password {p}",
    "pgpass": "db.example.com:5432:app:ada:{p}",
    "npmrc": "//registry.example.com/:_authToken={u}",
    "npmrc-auth": "_auth={b}",
    "npmrc-password": "//registry.example.com/:_password={b}",
    "pypirc": "[pypi]\nusername = ada\npassword = {p}",
    "docker-config": '{{"auths": {{"r.example.com": {{"auth": "{basic}"}}}}}}',
    "kube-token": "users:\n- name: ada\n  user:\n    token: {t}",
    "kube-key": "    client-key-data: {long}",
    "git-credentials": "https://ada:{t}@git.example.com",
    "htpasswd-file": "ada:$apr1${h8}${crypt}",
    "shadow": "ada:$6${h8}${crypt}:19000:0:99999:7:::",
    "bcrypt": "hash is $2b$12${crypt}",
    "aws-credentials": "[default]\naws_secret_access_key = {b40}",
    "maven": "<password>{p}</password>",
    "wireguard": "[Interface]\nPrivateKey = {b}\nAddress = 10.0.0.1/24",
    "wireguard-shared": "PresharedKey = {b}",
    "bearer": "Authorization: Bearer {t}",
    "bearer-curl": "curl -H 'Authorization: Bearer {t}' https://example.com",
    "bearer-json": '{{"headers": {{"Authorization": "Bearer {t}"}}}}',
    "basic": "Authorization: Basic {basic}",
    "token-header": "Authorization: token {h}",
    "digest": 'Authorization: Digest username="ada", nonce="{t}", response="{h}"',
    "signed-header": "Authorization: AWS4-HMAC-SHA256 Credential=x/y, Signature={h}",
    "proxy": "Proxy-Authorization: Basic {basic}",
    "x-api-key": "X-Api-Key: {t}",
    "private-token": "curl --header 'PRIVATE-TOKEN: {t}' https://example.com",
    "azure-key": "Ocp-Apim-Subscription-Key: {h32}",
    "cookie": "Cookie: sessionid={t}; csrftoken={t}",
    "set-cookie": "Set-Cookie: sid={t}; Path=/; HttpOnly",
    "curl-cookie": "curl --cookie 'session={t}' https://example.com",
    "postgres-url": "postgresql://ada:{w}@db:5432/app",
    "mysql-url": "mysql+pymysql://root:{p}@db/app",
    "redis-url": "redis://:{p}@cache:6379/0",
    "mongo-url": "mongodb+srv://ada:{p}@cluster0.example.net/app",
    "amqp-url": "amqp://ada:{w}@mq:5672/vhost",
    "https-url": "git clone https://ada:{p}@git.example.com/x.git",
    "token-url": "git clone https://{t}@git.example.com/x.git",
    "oauth-url": "https://oauth2:{t}@git.example.com/x.git",
    "escaped-url": '"https:\\/\\/ada:{p}@git.example.com\\/x"',
    "ftp-url": "ftp://ada:{p}@files.example.com/",
    "sentry-dsn": "https://{h32}@o12345.ingest.example.io/42",
    "percent-url": "to=https%3A%2F%2Fada%3A{p}%40git.example.com",
    "odbc": "Driver={{SQL Server}};Server=db;Uid=sa;Pwd={p};",
    "ado": "Server=db;Database=x;User Id=sa;Password={p};",
    "jdbc": "jdbc:mysql://db/app?user=ada&password={w}",
    "jdbc-oracle": "jdbc:oracle:thin:scott/{p}@//db:1521/orcl",
    "dsn": "host=db user=ada password={w} dbname=app",
    "azure-storage": "DefaultEndpointsProtocol=https;AccountName=x;AccountKey={b64};EndpointSuffix=y",
    "azure-bus": "Endpoint=sb://x.example.net/;SharedAccessKeyName=Root;SharedAccessKey={b}",
    "slack-hook": "https://hooks.slack.com/services/T0{u8}/B0{u8}/{t}",
    "discord-hook": "https://discord.com/api/webhooks/123456789012345678/{long}",
    "teams-hook": "https://x.webhook.office.com/webhookb2/{u}@{u}/IncomingWebhook/{h32}/{u}",
    "zapier-hook": "https://hooks.zapier.com/hooks/catch/123456/{t}/",
    "mattermost-hook": "https://chat.example.com/hooks/{t}",
    "telegram": "https://api.telegram.org/bot123456789:AA{t33}/getMe",
    "aws-signed": "https://b.s3.example.com/k?X-Amz-Credential=x&X-Amz-Signature={h64}&X-Amz-Expires=60",
    "google-signed": "https://storage.example.com/k?X-Goog-Signature={h64}",
    "azure-signed": "https://x.blob.example.net/c/b?sv=2022&se=2030&sr=b&sig={b64q}",
    "url-token": "https://app.example.com/login?access_token={t}&x=1",
    "url-key": "https://maps.example.com/api?key={t}",
    "url-code": "https://app.example.com/callback?code={t}&state=x",
    "jupyter": "http://localhost:8888/?token={h}",
    "otpauth": "otpauth://totp/x:ada?secret={base32}&issuer=x",
    "jwt": "id: {jwt}",
    "pem": "-----BEGIN {rsa}PRIVATE KEY-----\n{pem}\n-----END {rsa}PRIVATE KEY-----",
    "pem-escaped": '{{"key": "-----BEGIN PRIVATE KEY-----\\n{pem1}\\n-----END PRIVATE KEY-----\\n"}}',
    "pem-cut": "-----BEGIN {ec}PRIVATE KEY-----\n{pem}",
    "pem-tail": "{pem}\n-----END {ec}PRIVATE KEY-----",
    "openssh": "-----BEGIN OPENSSH PRIVATE KEY-----\n{pem}\n-----END OPENSSH PRIVATE KEY-----",
    "pem-encrypted": "-----BEGIN ENCRYPTED PRIVATE KEY-----\n{pem}\n-----END ENCRYPTED PRIVATE KEY-----",
    "pgp": "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{pem}\n=abcd\n-----END PGP PRIVATE KEY BLOCK-----",
    "putty": "PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 2\n{t}\n{t}\nPrivate-MAC: x",
    "pem-base64": "tls.key: {pem64}",
    "heredoc-pem": "cat <<E\n-----BEGIN {ec}PRIVATE KEY-----\n{pem}\n-----END {ec}PRIVATE KEY-----\nE",
    "ansible-vault": "$ANSIBLE_VAULT;1.1;AES256\n{h64}\n{h64}",
    "base64-command": "echo {wrapped} | base64 -d",
    "base64-python": 'base64.b64decode("{wrapped}")',
    "split-lines": 'token = "{split}"',
    "split-shell": "export X={split_shell}",
    "prose": "The password is {p}, please log in.",
    "prose-quoted": "my password is '{w}'",
    "prose-colon": "Password: {p}",
    "prose-key": "The API key for staging you asked for → {t}",
    "prose-token": "here is the access token: {t}",
    "mnemonic": 'mnemonic: "{words}"',
    "mail": "write to {mail}",
    "mail-escaped": "line\\n{mail}\\nline",
    "mail-header": "From: Ada <{mail}>",
    "phone": "call {phone}",
    "phone-national": "phone: {national}",
    "card": "card {card}",
    "card-grouped": "card {card4}",
    "home-linux": "cd /home/{user}/project && ls",
    "home-mac": "open /Users/{user}/project/x.py",
    "home-windows": "C:\\Users\\{user}\\project\\x.py",
    "home-escaped": '{{"path": "C:\\\\Users\\\\{user}\\\\x.py"}}',
    "home-url": "file:///home/{user}/x.py",
    "home-encoded": "path=%2Fhome%2F{user}%2Fx.py",
    "home-dashes": "~/.claude/projects/-Users-{user}-code-x/a.jsonl",
    "home-mounted": "/mnt/c/Users/{user}/x.py",
    "discord-bot": "client.run('M{t24}.{t6}.{t27}')",
    "sendgrid": "key {sendgrid}",
    "airtable": "curl x pat{t14}.{h64}",
    "asana": "use 1/1234567890123456:{h32}",
    "mailchimp": "use {h32}-us12",
    "azure-secret": "use abc8Q~{t33}",
    "terraform-token": "use {t14}.atlasv1.{long}",
    "salesforce": "use 00D{t15}!{long}",
    "launchdarkly": "use sdk-{u}",
    "hubspot": "use pat-na1-{u}",
    "plaid": "use access-sandbox-{u}",
    "paypal": "use access_token$production${t16}${h32}",
    "dynatrace": "use dt0c01.{U24}.{U64}",
}

SAID = frozenset(("rsa", "ec", "h8", "u8", "t6"))  # drawn, but no secret by itself
WORDS = ("swordfish", "mellonfriend", "opensesame", "trustnoone", "abracadabra")


def planted(seed: int = 5) -> Iterator[Canary]:
    """Every canary there is."""
    lot = Lot(seed)
    for number, (name, (one, two, alphabet, size)) in enumerate(PROVIDERS.items()):
        value = one + two + lot.draw(alphabet, size) + _further(name, lot)
        yield Canary(f"provider {name}", PLACES[number % len(PLACES)].format(value), (value,))
    for name, text in TEXTS.items():
        yield Canary(name, *_filled(text, lot))


def _further(name: str, lot: Lot) -> str:
    more = {"cloudflare": "-" + lot.draw(HEX, 146), "postman": "-" + lot.draw(HEX, 34)}
    more |= {"brevo": "-" + lot.draw(ALNUM, 16), "resend": "_" + lot.draw(ALNUM, 24)}
    return more.get(name, "")


def _filled(text: str, lot: Lot) -> tuple[str, tuple[str, ...]]:
    values: list[str] = []
    pieces: list[str] = []
    for before, field, _, _ in string.Formatter().parse(text):
        pieces.append(before)
        if field is None:
            continue
        shown, secrets = _drawn(field, lot)
        pieces.append(shown)
        if field not in SAID:
            values += secrets
    return "".join(pieces), tuple(values) or ("73920184",)


def _drawn(field: str, lot: Lot) -> tuple[str, tuple[str, ...]]:
    """What stands in the text for a field, and what of it must go."""
    special = _special(field, lot)
    if special is not None:
        return special
    value = {
        "p": lambda: lot.draw(ALNUM, 9) + "!" + lot.draw(ALNUM, 3),
        "w": lambda: lot.random.choice(WORDS),
        "t": lambda: lot.draw(ALNUM, 32),
        "long": lambda: lot.draw(ALNUM, 68),
        "u": lot.uuid,
        "h": lambda: lot.draw(HEX, 40),
        "b": lambda: _base64(lot, 32),
        "b64": lambda: _base64(lot, 64),
        "b40": lambda: lot.draw(ALNUM + "/+", 40),
        "b64q": lambda: quote(_base64(lot, 32), safe=""),
        "basic": lambda: base64.b64encode(f"ada:{lot.draw(ALNUM, 12)}".encode()).decode(),
        "crypt": lambda: lot.draw(ALNUM + "./", 53),
        "base32": lambda: lot.draw("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 32),
        "mail": lambda: f"{lot.draw(LOWER, 8)}@mail.example.com",
        "user": lambda: "u" + lot.draw(LOWER, 8),
        "phone": lambda: f"+49 151 {lot.random.randint(1000000, 9999999)}",
        "words": lambda: " ".join(lot.random.choices(WORDS, k=12)),
        "card": lambda: _card(lot),
        "U24": lambda: lot.draw(UPPER, 24),
        "U64": lambda: lot.draw(UPPER, 64),
        "sendgrid": lambda: "SG" + "." + lot.draw(ALNUM, 22) + "." + lot.draw(ALNUM, 43),
        "rsa": lambda: "RSA ",
        "ec": lambda: "EC ",
        "national": lambda: f"(555) 010-{lot.random.randint(1000, 9999)}",
        "h8": lambda: lot.draw(HEX, 8),
        "u8": lambda: lot.draw(UPPER, 8),
    }.get(field)
    if value is None:
        alphabet = HEX if field[0] == "h" else ALNUM
        drawn = lot.draw(alphabet, int(field[1:]))
    else:
        drawn = value()
    return drawn, (drawn,)


def _special(field: str, lot: Lot) -> tuple[str, tuple[str, ...]] | None:
    """Fields whose text is not the secret itself: it is wrapped, split or made of parts."""
    token = "gh" + "p_" + lot.draw(ALNUM, 36)
    if field == "wrapped":
        return base64.b64encode(f"TOKEN={token}".encode()).decode(), (token,)
    if field == "split":
        return f'{token[:22]}"\n         "{token[22:]}', (token[:22], token[22:])
    if field == "split_shell":
        return f"{token[:24]}\\\n{token[24:]}", (token[:24], token[24:])
    if field in ("pem", "pem1", "pem64"):
        rows = [lot.draw(ALNUM + "+/", 64) for _ in range(3)]
        if field == "pem64":
            whole = "-----BEGIN " + "PRIVATE KEY-----\n" + "\n".join(rows)
            return base64.b64encode(whole.encode()).decode(), tuple(rows)
        return ("\n" if field == "pem" else "\\n").join(rows), tuple(rows)
    if field == "jwt":
        parts = [
            _json64({"alg": "HS256", "typ": "JWT"}),
            _json64({"sub": lot.draw(ALNUM, 8)}),
            lot.draw(WORD, 43),
        ]
        return ".".join(parts), (".".join(parts), parts[2])
    if field == "card4":
        number = _card(lot)
        grouped = " ".join(number[at : at + 4] for at in range(0, 16, 4))
        return grouped, (grouped, number)
    return None


def _json64(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _base64(lot: Lot, size: int) -> str:
    return base64.b64encode(lot.random.randbytes(size)).decode()


def _card(lot: Lot) -> str:
    """A number of sixteen digits whose check digit is right."""
    digits = [4, 5] + [lot.random.randint(0, 9) for _ in range(13)]
    doubled = [
        digit * 2 - 9 * (digit > 4) if place % 2 == 0 else digit
        for place, digit in enumerate(digits)
    ]
    return "".join(map(str, digits)) + str(-sum(doubled) % 10)
