# ruff: noqa: E501  (a text stays on one line)
"""Texts with a secret in them, by class; `canaries.py` says what a field stands for.

{g} is a generated password, {m} one that a person chose, {T} a token with a known prefix.
"""

from __future__ import annotations

NEWER_PROVIDERS: dict[str, tuple[str, str]] = {  # first letters in two parts, and the rest's field
    "browserbase": ("bb_", "live_{t32}"), "deno": ("dd", "p_{t36}"), "polar": ("polar", "_oat_{t43}"),
    "sourcegraph": ("sg", "p_{h40}"), "trello": ("AT", "TA{h64}"), "cursor": ("ke", "y_{h64}"),
    "modal": ("a", "k-{t22}"), "brave": ("BS", "A{t28}"), "novita": ("s", "k_{t43}"),
    "dropbox": ("sl", ".u.{t120}"), "n8n": ("n8n", "_api_{t60}"), "apify": ("apify", "_api_{t36}"),
    "runpod": ("rp", "a_{t40}"), "aiven": ("AV", "NS_{t20}"), "xata": ("xa", "u_{t40}"),
    "mongodb": ("mdb_sa", "_sk_{t40}"), "google": ("AQ", ".Ab8{t50}"), "aws": ("IQoJb3", "JpZ2lu{t80}"),
    "axiom": ("xaa", "t-{u}"), "bitcoin": ("5", "K{w49}"), "ethereum": ("0", "x{h64}"),
    "unknown": ("acme", "_prod_{t40}"),
}  # fmt: skip

TEXTS_BY_CLASS: dict[str, tuple[str, ...]] = {
    "tokens alone": (
        'client = Client("{t40}")', "tool run '{t36}' --fast", "| prod | {t32} | yes |", "[INFO] got {t43}",
        "Use {t40} for this.", "curl -s https://api.example.com/v1/x/{t32}/y", 'k("{b}")', "out: {t48}",
    ),
    "settings": (
        "CI_TOKEN={m}", "DEPLOY_TOKEN={m}\nX=1", "export NPM_TOKEN={t12}", "JWT_SECRET=marble-orchid-tundra-staple",
        'session({{ secret: "oblong-velvet-marble-tundra", resave: false }})', "PASSWORD_PEPPER={t32}",
        "env:\n  OPENAI_KEY: {t40}", "password: !plain {m}", "<key>Password</key>\n<string>{m}</string>",
        '"password": {{"value": "{m}", "type":"string"}}', "user,password\nada,{m}\nbob,{g}",
        "| user | password |\n|---|---|\n| admin | {m} |", "name;role;secret\nx;y;{g}", "password = [[{m}]]",
        "stringData:\n  db: {m}\n", "kind: Secret\ndata:\n  db: {b}\n", "TOKEN_X: {t40}", "FOO_PRIVATE={t40}",
        "define('LOGGED_IN_KEY', '{t40}');", "aeg-sas-key: {b}", "db.password={m}", "[db]\npass = {m}",
        'variable "db_password" {{ default = "{m}" }}', "DB_PASSWORD: {m}", "spring.mail.password: {m}",
        'set -gx API_KEY "{t32}"', "setx API_KEY {t32}", "ARG NPM_TOKEN={t36}", "- API_TOKEN={m}", "$env:API_KEY = '{t32}'",
    ),
    "other languages": (
        "Das Passwort lautet {m}", "Kennwort: {m}", "mot de passe : {m}", "la password è {g}", "contraseña: {m}",
        "La contraseña es {m}", "clave: {m}", "senha: {m}", "a senha é {m}", "palavra-passe: {m}",
        "wachtwoord: {m}", "hasło: {m}", "heslo: {m}", "lösenord: {m}", "adgangskode: {m}", "passord: {m}",
        "salasana: {m}", "şifre: {m}", "parola: {m}", "пароль: {m}", "Пароль — {m}", "密码：{m}", "密碼是{m}",
        "パスワード: {m}", "パスワードは{m}です", "비밀번호: {m}", "كلمة المرور: {m}", "סיסמה: {m}", "पासवर्ड: {m}",
        "mật khẩu: {m}", "kata sandi: {m}", "jelszó: {m}", "κωδικός: {m}", "รหัสผ่าน: {m}",
    ),
    "prose": (
        "the password is {m}", "The password for staging is {m}.", "passphrase -> {m}", "password = {m}",
        "username admin password {g}", "log in with admin / {m}", "Log in as root:{m} please",
        "credentials: ada / {m}", "creds are ada:{m}", "I changed the password from {g} to {m}", "use token {t16}",
        "wifi is GuestNet / {m}", "api key below\n{t40}\nthanks", "Your OTP is 681996", "verification code: 481992",
        "use this to log in: root {g}", "the root password was {m}", "password (staging): {m}", "pw: {m}", "my pw is {m}",
        "the admin password has been set to {g}", "secret key {t32} was leaked",
    ),
    "commands": (
        "mysqladmin -u root password '{m}'", "AUTH default {m}", "rabbitmqctl add_user bob {m}",
        "etcdctl --user root:{m} get x", "db2 connect to x user bob using {m}", "ldappasswd -s {m} uid=bob",
        "schtasks /create /ru bob /rp {m}", "evil-winrm -i h -u bob -p {m}", "chpasswd <<< 'bob:{m}'",
        "sudo -S ls <<< '{m}'", "http -a bob:{m} GET h", "ab -A bob:{m} http://h/", "useradd -p {m} bob",
        "az keyvault secret set --vault-name v --name n --value '{m}'", "echo '{t36}' | vercel env add API_KEY production",
        "echo '{t36}' | gh secret set DEPLOY", "printf '{m}\\n{m}\\n' | passwd bob", "rclone obscure {m}",
        "openssl enc -aes-256-cbc -K {h64} -iv 00", "pdftk a input_pw {m} output b", "echo '{m}' | pass insert x",
        "mosquitto_pub -u bob -P {m} -t t", "ssh-keygen -p -P '{m}' -N '' -f k", "curl -b 'session={t32}' https://h/",
        "net use Z: \\\\h\\s {g} /user:bob", "telnet h <<E\nbob\n{g}\nE", "ftp -n h <<E\nuser bob {g}\nE",
        'send -- "{g}\\n"', "vncpasswd -f <<< '{m}'", "psexec.py corp/bob:'{g}'@h", "machine h password {m}",
    ),
    "code": (
        "db.auth('bob','{m}')", "s.login('bob@x','{m}')", 'httpx.BasicAuth("bob", "{m}")', "FTP('h','bob','{m}')",
        "pymysql.connect('h','bob','{m}','db')", "AES.new(b'{m}', AES.MODE_GCM)", "jwt.sign(payload, '{m}')",
        "driver.find_element(By.ID,'password').send_keys('{m}')", 'key = bytes.fromhex("{h64}")',
        "new NetworkCredential(\"ada\", \"{g}\")", "user.set_password('{m}')", "bcrypt.hashpw(b'{m}', salt)",
        "hmac.new(b'{m}', body)", "page.fill('#password', '{g}')",
    ),
    "links": (
        "https://h/reset-password/{t40}", "https://h/verify/{h40}", "https://h/invite/{t32}",
        "https://calendar.example.com/calendar/ical/x/private-{h32}/basic.ics",
    ),
    "key material": (
        "{b64line}\n{b64line}\n{b64line}", '{{"kty":"RSA","n":"AQAB","d":"{t80}"}}', "echo {b} | wg pubkey",
        "legal winner thank year wave sausage worth useful marble orchid thank yellow",
    ),
    "credential files": (
        '{{"github-oauth":{{"github.com":"{h40}"}}}}', "userPassword: {{SSHA}}{b40}", "        - --token\n        - {t64}",
        "password {m}\n", "Sec-WebSocket-Protocol: {t40}", "kubectl get secret x | base64 -d\n{g}",
    ),
    "encoded": (
        "data: {pw64}", "echo {hexT} | xxd -r -p", "{b32T}", "printf '{octT}'", "bytes([{bytesT}])", "{escT}", "{entT}",
        "powershell -enc {utf16}", "x={twice64}", "{zwT}", "password:\u00a0{m}",
    ),
    "split": (
        'export T="{T1}""{T2}"', 't = "".join(["{T1}","{T2}"])', "│ {T1} │\n│ {T2} │", "> token {T1}\n> {T2}",
        "password:\n    {g}\nuser: x", 'x = "{T1}" +\n    "{T2}"', "{T1}\\\n{T2}", "'{T1}' . '{T2}'", "# {T1}\n# {T2}",
    ),
}  # fmt: skip

# Each with what must be gone.
PERSONAL_TEXTS: tuple[tuple[str, str], ...] = (
    ("jane@acme.engineering", "jane"), ("jane [at] contoso [dot] com", "contoso"), ("ana@correo.com.py", "ana@"),
    ("call 415.555.0132", "0132"), ("to=+14155550132", "4155550132"), ("07700 900123", "900123"),
    ("DE89 3704 0044 0532 0130 00", "0532"), ("GB29 NWBK 6016 1331 9268 19", "9268"), ("SSN 078-05-1120", "1120"),
    ("account 12345678 sort code 12-34-56", "12345678"), ("NI number AB123456C", "123456"),
    ("passport C01X00T47", "X00T"), ("Steuer-ID 86095742719", "8609574"), ("license no D123-4567-8901", "4567"),
    ("10.20.30.40", "30.40"), ("00:1a:2b:3c:4d:5e", "3c:4d"), ("s3://contoso-prod-customers/", "contoso"),
    ("/srv/homes/jroe42/x", "jroe42"), ("/scratch/users/jroe42/run", "jroe42"), ("/afs/cern.ch/user/j/jroe42/", "jroe42"),
    ("/run/media/jroe42/x", "jroe42"), ("jroe42@laptop:~$ ls", "jroe42"),
    ("/var/folders/zz/zyxvpxvq6csfxvn_n0000000000000/T", "zyxvpxvq"),
    ("lives at 221B Baker Street, London NW1 6XE", "Baker"), ("Lindenstraße 12, Berlin", "Lindenstra"),
    ("call 0171 2085293", "2085293"), ("call 06 37 41 06 22", "37 41"), ("DOB: 1987-03-15", "1987"),
    ("born 14.03.1987", "1987"), ("-rw-r--r--  1 jroe42  staff  12 Jan 1 x", "jroe42"),
    ("uid=501(jroe42) gid=20(staff)", "jroe42"), ("scp jroe42@box:/srv/x .", "jroe42"),
    ("ssh Janes-MacBook-Pro.local", "Janes"), ("ping build7.corp.internal", "build7"),
    ("https://git.internal/x and ssh a@ci.corp.com", "ci.corp"), ("Author: Jane Roe <jane@x.io>", "Jane"),
    ("Signed-off-by: Jörg Müller <j@x.io>", "Müller"),
)  # fmt: skip
