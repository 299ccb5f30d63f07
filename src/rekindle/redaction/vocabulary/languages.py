"""Words for password in other languages than English."""

from __future__ import annotations

import re

# In ASCII letters; each is also a literal in `stems.py`. Words that contain `pass` are found by it.
ASCII_PASSWORD_WORDS = (
    b"kennwort", b"contrasena", b"clave", b"senha", b"wachtwoord", b"haslo", b"heslo",
    b"adgangskode", b"salasana", b"parola", b"sifre", b"kata sandi", b"mat khau", b"jelszo",
    b"geslo", b"lozinka",
)  # fmt: skip
_OTHER_PASSWORD_WORDS = (
    "contraseña", "contrasenya", "mot de passe", "palavra-passe", "código secreto", "hasło",
    "lösenord", "løsenord", "şifre", "parolă", "jelszó", "kodeord", "lykilorð", "slaptažodis",
    "mật khẩu", "пароль", "пароля", "паролем", "парола", "лозинка", "κωδικός", "σύνθημα",
    "密码", "密碼", "口令", "暗号", "パスワード", "暗証番号", "비밀번호", "암호", "비번",
    "รหัสผ่าน", "पासवर्ड", "কূটশব্দ", "পাসওয়ার্ড", "கடவுச்சொல்", "كلمة المرور", "كلمة السر", "رمز عبور",
    "گذرواژه", "סיסמה", "סיסמא", "պարոլ", "გასაღები", "პაროლი", "құпиясөз",
)  # fmt: skip
_SPELLINGS = {
    form for word in _OTHER_PASSWORD_WORDS for form in (word, word.capitalize(), word.upper())
}
FOREIGN_PASSWORD_WORD = re.compile(
    "|".join(sorted(re.escape(word) for word in _SPELLINGS if not word.isascii()))
)
# Letters of other languages, as opposed to symbols, boxes and pictures.
FOREIGN_LETTER = re.compile(
    "[\u00e0-\u024f\u00c0-\u00d6\u0370-\u1cff\u1e00-\u1fff\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]"
)
