"""The client of the library, as a session needs it."""

from __future__ import annotations

import socket
import ssl

import paho.mqtt.client as paho


class MqttClient(paho.Client):
    """By itself it leaves a connection open on which TLS failed, until the garbage collector finds it."""

    def _ssl_wrap_socket(self, tcp_sock: socket.socket) -> ssl.SSLSocket:
        context = self._ssl_context
        assert context is not None
        secured: socket.socket = tcp_sock
        try:
            # The context says whether the host's name is checked.
            secured = connection = context.wrap_socket(
                tcp_sock, server_hostname=self._host, do_handshake_on_connect=False
            )
            connection.settimeout(self.connect_timeout)
            connection.do_handshake()
        except BaseException:
            secured.close()
            raise
        return connection
