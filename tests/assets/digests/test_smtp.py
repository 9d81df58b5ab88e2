"""Mails by SMTP to a real server: accepted, refused, or unknown."""

from __future__ import annotations

import socket
import threading
from email.message import EmailMessage
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from cronless_dagster.assets.digests.errors import MailerError, MaybeSent, NotSent
from cronless_dagster.assets.digests.smtp import SmtpMailer, SmtpServer
from tests.assets.digests.conftest import PASSWORD, authenticate

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.assets.digests.conftest import MailServer

READER, SENDER = "reader@example.org", "news@example.org"


def mail(text: str = "Hello") -> EmailMessage:
    """Return a small mail."""
    made = EmailMessage()
    made["From"], made["To"], made["Subject"] = SENDER, READER, "News"
    made.set_content(text)
    return made


def send(mailer: SmtpMailer, message: EmailMessage | None = None) -> None:
    """Send a mail to the reader."""
    mailer.send(message or mail(), to=READER, sender=SENDER)


@pytest.fixture
def mailer(mail_server: MailServer) -> Iterator[SmtpMailer]:
    """A mailer of the server without TLS."""
    made = SmtpMailer(mail_server.url)
    yield made
    made.close()


class TestAccepted:
    """What a server accepts."""

    def test_it_arrives_with_its_envelope(self, mailer: SmtpMailer, mail_server: MailServer) -> None:
        """One mail, one recipient."""
        send(mailer)
        [(sender, recipients, message)] = mail_server.postbox.mails
        assert (sender, recipients) == (SENDER, [READER])
        assert message.get_content() == "Hello\r\n"

    def test_dots_and_line_ends_survive(self, mailer: SmtpMailer, mail_server: MailServer) -> None:
        """A line that begins with a dot is data, and every line ends with CRLF."""
        send(mailer, mail(".\n..two\nend"))
        [(_, _, message)] = mail_server.postbox.mails
        assert message.get_content() == ".\r\n..two\r\nend\r\n"
        [raw] = mail_server.postbox.raw
        assert raw.count(b"\n") == raw.count(b"\r\n") > 5

    def test_a_connection_serves_many_mails(self, mailer: SmtpMailer, mail_server: MailServer) -> None:
        """A batch doesn't pay for a handshake each."""
        for _ in range(5):
            send(mailer)
        assert len(mail_server.postbox.mails) == 5
        assert mail_server.postbox.connections == 1

    def test_a_connection_that_was_dropped_in_between_is_made_anew(
        self, mailer: SmtpMailer, mail_server: MailServer
    ) -> None:
        """Nothing of the second mail had been handed over, so it may be sent again."""
        mail_server.postbox.hang_up = "before"
        [session] = [mailer._connect()]
        mailer._keep(session)
        session.sock.shutdown(socket.SHUT_RDWR)
        mail_server.postbox.hang_up = None
        send(mailer)
        assert len(mail_server.postbox.mails) == 1
        assert mail_server.postbox.connections == 2

    def test_threads_have_connections_of_their_own(self, mailer: SmtpMailer, mail_server: MailServer) -> None:
        """Sixteen mails by four threads arrive whole."""

        def four() -> None:
            for _ in range(4):
                send(mailer)

        threads = [threading.Thread(target=four) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(mail_server.postbox.mails) == 16
        assert mail_server.postbox.connections <= 4


class TestRefused:
    """What a server refuses is known not to be sent."""

    @pytest.mark.parametrize(
        ("reply", "temporary"), [("550 no such mailbox", False), ("451 greylisted", True), ("452 full", True)]
    )
    @pytest.mark.parametrize("step", ["recipient", "text"])
    def test_it_says_whether_another_try_may_help(
        self, mailer: SmtpMailer, mail_server: MailServer, step: str, reply: str, temporary: bool
    ) -> None:
        """A recipient or a text, for now or for good."""
        setattr(mail_server.postbox, step, reply)
        with pytest.raises(NotSent, match=reply[4:]) as caught:
            send(mailer)
        assert caught.value.temporary is temporary
        assert not mail_server.postbox.mails

    def test_the_next_mail_goes_on(self, mailer: SmtpMailer, mail_server: MailServer) -> None:
        """On the same connection."""
        mail_server.postbox.recipient = "550 no"
        with pytest.raises(NotSent):
            send(mailer)
        mail_server.postbox.recipient = None
        send(mailer)
        assert (len(mail_server.postbox.mails), mail_server.postbox.connections) == (1, 1)

    def test_a_server_that_is_away_is_temporary(self) -> None:
        """Nothing listens there."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
            with pytest.raises(NotSent, match="can't be used") as caught:
                send(SmtpMailer(f"smtp://127.0.0.1:{port}?tls=no"))
        assert caught.value.temporary

    def test_a_yes_before_the_text_is_no_yes(self, mailer: SmtpMailer, mail_server: MailServer) -> None:
        """A server whose replies come out of turn has taken nothing, and is not spoken to any further."""
        mail_server.postbox.data = "250 OK"
        with pytest.raises(NotSent, match="answered DATA by 250") as caught:
            send(mailer)
        assert caught.value.temporary
        mail_server.postbox.data = None
        send(mailer)
        assert (len(mail_server.postbox.mails), mail_server.postbox.connections) == (1, 2)

    def test_hanging_up_before_the_text_is_known(self, mailer: SmtpMailer, mail_server: MailServer) -> None:
        """DATA was asked for and nothing was handed over."""
        mail_server.postbox.hang_up = "before"
        with pytest.raises(NotSent, match="hung up before") as caught:
            send(mailer)
        assert caught.value.temporary


class TestUnknown:
    """What may have been accepted."""

    @pytest.mark.parametrize("when", ["after", "accepted"])
    def test_hanging_up_after_the_text(self, mailer: SmtpMailer, mail_server: MailServer, when: str) -> None:
        """Both look alike from here, so both may have been sent, and neither is tried again."""
        mail_server.postbox.hang_up = when
        with pytest.raises(MaybeSent, match="took the mail's text"):
            send(mailer)
        assert len(mail_server.postbox.mails) == (when == "accepted")
        assert mail_server.postbox.connections == 1

    def test_also_on_a_connection_that_was_used_before(
        self, mailer: SmtpMailer, mail_server: MailServer
    ) -> None:
        """A connection that is kept is no reason to send again."""
        send(mailer)
        mail_server.postbox.hang_up = "accepted"
        with pytest.raises(MaybeSent):
            send(mailer)
        assert len(mail_server.postbox.mails) == 2

    def test_no_answer_in_time(self, mail_server: MailServer) -> None:
        """A slow server may accept it after all."""
        mail_server.postbox.go_on = threading.Event()
        mailer = SmtpMailer(mail_server.url.replace("timeout=10", "timeout=1"))
        with pytest.raises(MaybeSent):
            send(mailer)
        mail_server.postbox.go_on.set()

    def test_an_answer_that_is_none(self, mailer: SmtpMailer, mail_server: MailServer) -> None:
        """Neither accepted nor refused."""
        mail_server.postbox.text = "?? what"
        with pytest.raises(MaybeSent, match="answer that is none"):
            send(mailer)


class TestTls:
    """TLS and logins."""

    def url(
        self, server: MailServer, certificate: tuple[Path, Path], scheme: str = "smtp", login: str = ""
    ) -> str:
        """Return the server's address with its certificate trusted."""
        return f"{scheme}://{login}localhost:{server.port}?ca_file={certificate[0]}&timeout=10"

    def test_starttls_and_a_login(
        self,
        serve_mail: Callable[..., MailServer],
        server_context: ssl.SSLContext,
        certificate: tuple[Path, Path],
    ) -> None:
        """As most providers want it; a password may have any sign in it."""
        server = serve_mail(
            tls_context=server_context, require_starttls=True, auth_required=True, authenticator=authenticate
        )
        mailer = SmtpMailer(self.url(server, certificate, login=f"reader:{quote(PASSWORD, safe='')}@"))
        send(mailer)
        mailer.close()
        assert len(server.postbox.mails) == 1
        assert server.postbox.logins == [b"reader"]

    def test_tls_from_the_start(
        self,
        serve_mail: Callable[..., MailServer],
        server_context: ssl.SSLContext,
        certificate: tuple[Path, Path],
    ) -> None:
        """What smtps:// stands for."""
        server = serve_mail(ssl_context=server_context)
        mailer = SmtpMailer(self.url(server, certificate, "smtps"))
        send(mailer)
        mailer.close()
        assert len(server.postbox.mails) == 1

    def test_a_certificate_that_nobody_vouches_for_is_refused(
        self, serve_mail: Callable[..., MailServer], server_context: ssl.SSLContext
    ) -> None:
        """The mail isn't handed over, nor is the login."""
        server = serve_mail(tls_context=server_context, authenticator=authenticate)
        with pytest.raises(NotSent, match="certificate") as caught:
            send(SmtpMailer(f"smtp://reader:secret@localhost:{server.port}"))
        assert caught.value.temporary
        assert not server.postbox.logins

    def test_a_server_without_starttls_is_refused(self, mail_server: MailServer) -> None:
        """Unless the address says otherwise."""
        with pytest.raises(NotSent, match="offers no STARTTLS"):
            send(SmtpMailer(f"smtp://127.0.0.1:{mail_server.port}"))
        assert not mail_server.postbox.mails

    def test_a_wrong_password_shows_no_password(
        self,
        serve_mail: Callable[..., MailServer],
        server_context: ssl.SSLContext,
        certificate: tuple[Path, Path],
    ) -> None:
        """Temporary: it says nothing of this mail, and somebody corrects it."""
        server = serve_mail(tls_context=server_context, auth_required=True, authenticator=authenticate)
        with pytest.raises(NotSent, match="refused the login") as caught:
            send(SmtpMailer(self.url(server, certificate, login="reader:hunter2@")))
        assert caught.value.temporary
        assert "hunter2" not in str(caught.value)

    def test_a_login_that_smtplib_cannot_write_sends_nothing(
        self,
        serve_mail: Callable[..., MailServer],
        server_context: ssl.SSLContext,
        certificate: tuple[Path, Path],
    ) -> None:
        """A password beyond ASCII leaves no digest in doubt: none was handed over."""
        server = serve_mail(tls_context=server_context, auth_required=True, authenticator=authenticate)
        with pytest.raises(NotSent, match="beyond ASCII") as caught:
            send(SmtpMailer(self.url(server, certificate, login="reader:h%C3%BCnter@")))
        assert caught.value.temporary
        assert "nter" not in str(caught.value)


class TestAddress:
    """The server's address."""

    def test_ports_and_ways(self) -> None:
        """RFC 6409 and RFC 8314 name the ports."""
        assert (SmtpServer.of("smtp://h").port, SmtpServer.of("smtp://h").tls) == (587, "starttls")
        assert (SmtpServer.of("smtps://h").port, SmtpServer.of("smtps://h").tls) == (465, "at once")
        assert SmtpServer.of("smtp://u:p%2Fq@h:25").password == "p/q"

    @pytest.mark.parametrize(
        "url",
        [
            "http://h",
            "smtp://",
            "smtp://u:hunter2@h:port",
            "smtp://u:hunter2@h?tls=no",
            "smtp://u:hunter2@h?tls=perhaps",
            "smtps://u:hunter2@h?tls=no",
            "smtp://u:hunter2@h?timeout=0",
            "smtp://u:hunter2@h?timeout=x",
            "smtp://u:hunter2@h?starttls=no",
        ],
    )
    def test_what_cannot_be_used_is_refused_without_its_password(self, url: str) -> None:
        """One sentence, and no login in it."""
        with pytest.raises(MailerError) as caught:
            SmtpMailer(url)
        assert "hunter2" not in str(caught.value)

    def test_no_password_is_shown(self) -> None:
        """Neither by the mailer nor by its server."""
        mailer = SmtpMailer("smtp://u:hunter2@h")
        assert "hunter2" not in repr(mailer) + repr(mailer.server) + str(mailer.server)
