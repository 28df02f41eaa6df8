"""Under which names an index may have what code imports."""

from collections.abc import Sequence

from packaging.utils import canonicalize_name

# Where the distribution is not called as the package. Only an install could tell; these are common.
_ELSEWHERE = {
    "Bio": "biopython",
    "Crypto": "pycryptodome",
    "MySQLdb": "mysqlclient",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "agents": "openai-agents",
    "airflow": "apache-airflow",
    "apache_beam": "apache-beam",
    "attr": "attrs",
    "autogen": "ag2",
    "azureml": "azureml-core",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "firecrawl": "firecrawl-py",
    "fitz": "pymupdf",
    "git": "gitpython",
    "github": "pygithub",
    "googleapiclient": "google-api-python-client",
    "grpc": "grpcio",
    "imblearn": "imbalanced-learn",
    "jose": "python-jose",
    "jwt": "pyjwt",
    "ldap": "python-ldap",
    "magic": "python-magic",
    "mem0": "mem0ai",
    "mpl_toolkits": "matplotlib",
    "multipart": "python-multipart",
    "nacl": "pynacl",
    "odc": "odc-stac",
    "pkg_resources": "setuptools",
    "pptx": "python-pptx",
    "pylab": "matplotlib",
    "rest_framework": "djangorestframework",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "slugify": "python-slugify",
    "smexperiments": "sagemaker-experiments",
    "socks": "pysocks",
    "surprise": "scikit-surprise",
    "telegram": "python-telegram-bot",
    "umap": "umap-learn",
    "usb": "pyusb",
    "vertexai": "google-cloud-aiplatform",
    "win32api": "pywin32",
    "win32com": "pywin32",
    "xrspatial": "xarray-spatial",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
    "google.api_core": "google-api-core",
    "google.oauth2": "google-auth",
    "google.protobuf": "protobuf",
    "google.rpc": "googleapis-common-protos",
    "google.type": "googleapis-common-protos",
}
# Packages that many distributions fill. Their own names say nothing about who has `google.x`.
_NAMESPACES = frozenset(
    {"azure", "backports", "google", "jaraco", "ruamel", "sphinxcontrib", "zope"}
)
_NAMESPACE_DEPTH = 3  # `google.cloud.storage`, `azure.ai.ml`


def importable_unit(module: str) -> str:
    """The part of a dotted name that one distribution provides whole: as a rule its first name."""
    parts = module.split(".")
    if parts[0] not in _NAMESPACES:
        return parts[0]
    return ".".join(parts[: 2 if ".".join(parts[:2]) in _ELSEWHERE else _NAMESPACE_DEPTH])


def distributions_for(unit: str) -> Sequence[str]:
    """Canonical names under which an index may have an `importable_unit`, likeliest first.

    A bare namespace has none: it comes with whatever fills it.
    """
    parts = unit.split(".")
    if unit in _ELSEWHERE or parts[0] not in _NAMESPACES:
        return [canonicalize_name(_ELSEWHERE.get(unit, unit))]
    return [canonicalize_name("-".join(parts[:size])) for size in range(len(parts), 1, -1)]
